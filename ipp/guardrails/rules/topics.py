"""Subjects, told by the words that belong to them: some that may not come up, some of which one must.

A text is about a topic when it has as many different words of it as the topic asks for. All topics' words are
looked for in one search, disguises included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataplane.config.guardrails import Topic, Topics
from dataplane.errors import ConfigError
from ipp.guardrails.matches import Match
from ipp.guardrails.selection import leftmost
from ipp.guardrails.words import Hit, WordFinder

OFF_TOPIC: Final = "offTopic"


class TopicRule:
    """Kinds are ``topic NAME`` for the words of a denied topic, and ``offTopic`` for a whole text."""

    longest = None

    def __init__(self, parameters: Topics) -> None:
        topics = [*parameters.denied, *parameters.allowed]
        self._denied = len(parameters.denied)
        self._topics = topics
        self._min_characters = parameters.min_characters
        words = [word for topic in topics for word in topic.words]
        owners = [index for index, topic in enumerate(topics) for _ in topic.words]
        try:
            self._finder = WordFinder(words)
        except ConfigError as error:
            raise ConfigError(error.message, path=_path(parameters, error.path)) from None
        self._owners: dict[int, set[int]] = {}
        for word, owner in zip(self._finder.reported, owners, strict=True):
            self._owners.setdefault(word, set()).add(owner)

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        hits = self._finder.find(text, start)
        by_topic: dict[int, list[Hit]] = {}
        for hit in hits:
            for owner in self._owners[hit.word]:
                by_topic.setdefault(owner, []).append(hit)
        about = {
            index
            for index, found in by_topic.items()
            if len({hit.word for hit in found}) >= self._topics[index].at_least
        }
        denied = [
            Match(hit.start, hit.end, f"topic {self._topics[index].name}")
            for index in sorted(about)
            if index < self._denied
            for hit in by_topic[index]
        ]
        if denied:
            return leftmost(denied)
        size = len(text.strip())
        limited = len(self._topics) > self._denied and size >= self._min_characters
        if limited and start < len(text) and not any(index >= self._denied for index in about):
            return [Match(start, len(text), OFF_TOPIC)]
        return []


def _path(parameters: Topics, path: str) -> str:
    """Where in the document the word is that the search refuses by its place in the joined list."""
    place = int(path.partition("[")[2].rstrip("]"))
    groups: list[tuple[str, list[Topic]]] = [("denied", parameters.denied), ("allowed", parameters.allowed)]
    for name, topics in groups:
        for index, topic in enumerate(topics):
            if place < len(topic.words):
                return f"{name}[{index}].words[{place}]"
            place -= len(topic.words)
    return ""
