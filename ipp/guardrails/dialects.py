"""What the events of each API's streams say: which text goes on, which ends, and how such a stream is cut.

A channel is a text that goes on from event to event: the content of a choice, the arguments of one of its
tool calls, a block of a message. Its key begins with what it ends with: the choice, the block, the item. All
other texts of an event stand for themselves, like those of events that repeat at the end what has been said.

Nothing is assumed about the order of events. In a stream of no known API each text goes on where the next
event has one in the same place, and it is cut by an error alone.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ipp.guardrails.answers import error_of
from ipp.guardrails.frames import DONE
from ipp.guardrails.shapes import Kind
from ipp.guardrails.texts import Text
from ipp.guardrails.verdicts import Refusal

Channel = tuple[object, ...]
"""Key of a text that goes on; a beginning of it names all channels that end together."""

ALL: Final[Channel] = ()
OTHER: Final = "other"
"""What keys of texts begin with that no known API says."""
BARE: Final[Channel] = (OTHER, ())
"""The text of events whose data is no JSON."""
MAX_OPEN: Final = 4096
"""Choices or blocks that are remembered as open."""

_ANTHROPIC: Final = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)
_LABELS: Final = frozenset({b"type", b"id", b"format", b"name", b"role", b"signature"})
"""What tells what a text is, in objects that nobody knows as well, and never goes on."""
_ENDS_RESPONSE: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Reading(NamedTuple):
    """What one event says."""

    channels: list[Channel | None]
    """For each text in it the one it goes on with; None = it stands for itself."""
    ends: list[Channel]
    """What ends with it."""


def read(value: Any, texts: Sequence[Text]) -> Reading:
    """What an event with this data, and these texts in it, says."""
    if not isinstance(value, Mapping):
        return _read_other(texts)
    kind = value.get("type")
    if isinstance(value.get("choices"), list):
        return _read_choices(value, texts)
    if isinstance(value.get("candidates"), list):
        return _read_candidates(value, texts)
    if isinstance(kind, str):
        if kind.startswith("response."):
            return _read_response(kind, value, texts)
        if kind in _ANTHROPIC:
            return _read_anthropic(kind, value, texts)
    if "error" in value or kind == "error":
        return Reading([None] * len(texts), [ALL])
    return Reading([None] * len(texts), []) if kind == "ping" else _read_other(texts)


def _read_other(texts: Sequence[Text]) -> Reading:
    channels = [None if text.kind is Kind.DATA else (OTHER, text.keys) for text in texts]
    return Reading(list(channels), [])


def _item(values: Any, at: object) -> Mapping[str, Any]:
    found = values[at] if isinstance(values, list) and isinstance(at, int) and at < len(values) else None
    return found if isinstance(found, Mapping) else {}


def _index(value: Mapping[str, Any], otherwise: object) -> object:
    index = value.get("index")
    return index if isinstance(index, int) else otherwise


def is_finished(choice: Mapping[str, Any]) -> bool:
    """Whether a choice ends; there are servers that give every event a reason, which is empty until then."""
    reason = choice.get("finish_reason") or choice.get("finishReason")
    return isinstance(reason, str) and bool(reason)


def _read_choices(value: Mapping[str, Any], texts: Sequence[Text]) -> Reading:
    choices = value["choices"]
    channels: list[Channel | None] = []
    for text in texts:
        keys = text.keys
        if (
            len(keys) < 3
            or keys[0] != b"choices"
            or keys[2] not in (b"delta", b"text")
            or keys[-1] in _LABELS
            or text.kind is Kind.DATA
        ):
            channels.append(None)
            continue
        choice = _item(choices, keys[1])
        rest: list[object] = [key for key in keys[2:] if not isinstance(key, int)]
        if b"tool_calls" in keys[3:4] and len(keys) > 4:
            delta = choice.get("delta")
            calls = delta.get("tool_calls") if isinstance(delta, Mapping) else None
            rest.append(_index(_item(calls, keys[4]), keys[4]))
        channels.append(("choice", _index(choice, keys[1]), *rest))
    ends: list[Channel] = []
    for at in range(len(choices)):
        choice = _item(choices, at)
        if is_finished(choice):
            ends.append(("choice", _index(choice, at)))
    return Reading(channels, ends)


def _read_candidates(value: Mapping[str, Any], texts: Sequence[Text]) -> Reading:
    candidates = value["candidates"]
    channels: list[Channel | None] = []
    for text in texts:
        keys = text.keys
        if keys[:1] != (b"candidates",) or keys[-1] != b"text" or keys[2:4] != (b"content", b"parts"):
            channels.append(None)
            continue
        candidate = _item(candidates, keys[1])
        content = candidate.get("content")
        part = _item(content.get("parts") if isinstance(content, Mapping) else None, keys[4])
        channels.append(("choice", _index(candidate, keys[1]), "thought" if part.get("thought") else "text"))
    ends: list[Channel] = []
    for at in range(len(candidates)):
        candidate = _item(candidates, at)
        if is_finished(candidate):
            ends.append(("choice", _index(candidate, at)))
    return Reading(channels, ends)


def _read_anthropic(kind: str, value: Mapping[str, Any], texts: Sequence[Text]) -> Reading:
    block = ("block", value.get("index"))
    channels: list[Channel | None] = [
        (*block, text.keys[-1])
        if kind == "content_block_delta" and len(text.keys) == 2 and text.keys[0] == b"delta"
        else None
        for text in texts
    ]
    if kind == "content_block_stop":
        return Reading(channels, [block])
    return Reading(channels, [ALL] if kind in ("message_delta", "message_stop") else [])


def _read_response(kind: str, value: Mapping[str, Any], texts: Sequence[Text]) -> Reading:
    stem, _, what = kind.rpartition(".")
    item: Channel = ("item", value.get("output_index"), value.get("item_id"))
    place = (value.get("content_index"), value.get("summary_index"))
    channel: Channel = (*item, stem, *place)
    channels: list[Channel | None] = [
        channel if what == "delta" and text.keys == (b"delta",) else None for text in texts
    ]
    if kind in _ENDS_RESPONSE:
        return Reading(channels, [ALL])
    if kind == "response.output_item.done":
        return Reading(channels, [("item", value.get("output_index"))])
    return Reading(channels, [channel] if what == "done" else [])


def lies_at(value: Any, text: Text, words: str) -> bool:
    """Whether decoders find this text there; of two members with one name they find the last."""
    for key in text.keys:
        try:
            value = value[key if isinstance(key, int) else key.decode()]
        except (KeyError, IndexError, TypeError, UnicodeDecodeError):
            return False
    return bool(value == words)


def is_arguments(value: Any, text: Text) -> bool:
    """Whether a text that goes on is JSON: arguments of a tool call."""
    if text.kind is Kind.JSON:
        return True
    kind = value.get("type") if isinstance(value, Mapping) else None
    return text.keys == (b"delta",) and isinstance(kind, str) and kind.endswith("arguments.delta")


def is_media(value: Any, text: Text) -> bool:
    """Whether a string that looks like text is a piece of sound or of a picture."""
    kind = value.get("type") if isinstance(value, Mapping) else None
    return text.keys == (b"delta",) and kind in ("response.audio.delta", "response.output_audio.delta")


def carrier(value: Any, text: Text, words: str) -> bytes:
    """An event like the one with this data, in which ``text`` lies, that says ``words`` there and no more."""
    if text.kind is Kind.DATA:
        lines = words.encode("utf-8", "replace").split(b"\n")
        return b"".join(b"data: %b\n" % line for line in lines) + b"\n"
    if read(value, [text]).channels[0] == (OTHER, text.keys):
        return _bare_carrier(text, words)
    made: Any = copy.deepcopy(value)
    if text.keys[0] == b"choices":
        choice = _item(made["choices"], text.keys[1])
        bare: dict[str, Any] = {"index": _index(choice, text.keys[1])}
        source: Any = choice
        target: Any = bare
        for key, following in zip(text.keys[2:-1], text.keys[3:], strict=True):
            name = key.decode() if isinstance(key, bytes) else key
            source = source[name]
            inner: Any = [] if isinstance(following, int) else {}
            if isinstance(source, Mapping):
                inner |= {same: source[same] for same in ("index", "type") if same in source}
            if isinstance(target, list):
                target.append(inner)
            else:
                target[name] = inner
            target = inner
        last = text.keys[-1]
        if isinstance(target, list):
            target.append(words)
        else:
            target[last.decode() if isinstance(last, bytes) else last] = words
        made["choices"] = [{**bare, "logprobs": None, "finish_reason": None}]
        made.pop("usage", None)
        return event(made)
    at = made
    for key in text.keys[:-1]:
        at = at[key.decode() if isinstance(key, bytes) else key]
    last = text.keys[-1]
    at[last.decode() if isinstance(last, bytes) else last] = words
    return event(made)


def _bare_carrier(text: Text, words: str) -> bytes:
    """An event of no known API: nothing else of it may be said again, since it may be masked."""
    made: Any = words
    for key in reversed(text.keys):
        made = [made] if isinstance(key, int) else {key.decode("utf-8", "replace"): made}
    return b"data: " + msgspec.json.encode(made) + b"\n\n"


def event(value: Mapping[str, Any]) -> bytes:
    """An event with this data; named as its type where an API does so."""
    kind = value.get("type")
    named = isinstance(kind, str) and (kind in _ANTHROPIC or kind == "error" or kind.startswith("response."))
    head = b"event: " + str(kind).encode() + b"\n" if named else b""
    return head + b"data: " + msgspec.json.encode(value) + b"\n\n"


class Ending:
    """What has been sent of a stream, as far as it takes to end it like its API does."""

    def __init__(self) -> None:
        self._last: Mapping[str, Any] = {}
        """Data of an event that tells the API."""
        self._first: Mapping[str, Any] = {}
        """Data of the first event that came, sent or not: it tells the API where none was sent."""
        self._open: dict[object, bool] = {}
        """Choices or blocks that have begun; whether each goes on."""
        self.usage: Mapping[str, Any] | None = None
        """The last usage that the stream told."""

    def came(self, value: Any) -> None:
        """An event with this data came."""
        if not self._first and isinstance(value, Mapping):
            self._first = value

    def sent(self, value: Any) -> None:
        """An event with this data goes to the client."""
        if not isinstance(value, Mapping):
            return
        kind = value.get("type")
        usage = value.get("usage") or value.get("usageMetadata")
        self.usage = usage if isinstance(usage, Mapping) else self.usage
        choices = value.get("choices") or value.get("candidates")
        if isinstance(choices, list):
            self._last = value
            for at in range(len(choices)):
                choice = _item(choices, at)
                self._note(_index(choice, at), not is_finished(choice))
        elif kind in _ANTHROPIC:
            self._last = value
            if kind in ("content_block_start", "content_block_stop"):
                self._note(value.get("index"), kind == "content_block_start")
        elif isinstance(kind, str) and kind.startswith("response."):
            self._last = (
                value
                if isinstance(value.get("response"), Mapping) or not self._last
                else {**self._last, "sequence_number": value.get("sequence_number")}
            )

    def _note(self, index: object, goes_on: bool) -> None:
        if len(self._open) < MAX_OPEN:
            self._open[index] = goes_on

    def cut(self, refusal: Refusal) -> bytes:
        """The events that end the stream here: filtered content, the error, and the end."""
        last, error = self._last, error_of(refusal)
        still = [index for index, goes_on in self._open.items() if goes_on]
        if "choices" in last:
            is_chat = last.get("object") != "text_completion"
            said: dict[str, Any] = {"delta": {}} if is_chat else {"text": ""}
            kept = {name: last[name] for name in ("id", "object", "created", "model") if name in last}
            choices = [
                {"index": index, **said, "logprobs": None, "finish_reason": "content_filter"}
                for index in still or [0]
            ]
            return event({**kept, "choices": choices}) + event({"error": error}) + _done()
        if "candidates" in last:
            candidates = [{"index": index, "finishReason": "SAFETY"} for index in still or [0]]
            status = {"code": refusal.status, "message": refusal.message, "status": "INVALID_ARGUMENT"}
            return event({"candidates": candidates}) + event({"error": status})
        kind = str(last.get("type", ""))
        if kind in _ANTHROPIC:
            stops = [event({"type": "content_block_stop", "index": index}) for index in still]
            delta = {"stop_reason": "refusal", "stop_sequence": None}
            # Usage is part of this event; tokens have been counted where the model's own events passed.
            reason = event(
                {"type": "message_delta", "delta": delta, "usage": self.usage or {"output_tokens": 0}}
            )
            told = event({"type": "error", "error": error})
            return b"".join((*stops, reason, told, event({"type": "message_stop"})))
        if kind.startswith("response."):
            return self._cut_response(refusal)
        begun = str(self._first.get("type", ""))
        if begun in _ANTHROPIC:
            return event({"type": "error", "error": error})
        if begun.startswith("response."):
            return event({"sequence_number": 0, **error, "type": "error"}) + _done()
        return event({"error": error}) + _done()

    def _cut_response(self, refusal: Refusal) -> bytes:
        known = self._last.get("response")
        response = dict(known) if isinstance(known, Mapping) else {"object": "response"}
        response |= {
            "status": "incomplete",
            "incomplete_details": {"reason": "content_filter"},
            "output": [],
        }
        number = self._last.get("sequence_number")
        number = number if isinstance(number, int) else 0
        ended = {"type": "response.incomplete", "sequence_number": number + 1, "response": response}
        told = {"type": "error", "sequence_number": number + 2, **error_of(refusal)} | {"type": "error"}
        return event(ended) + event(told) + _done()


def _done() -> bytes:
    return b"data: " + DONE + b"\n\n"
