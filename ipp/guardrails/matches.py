"""What rules of guardrails say they found, and the two shapes a rule can have that needs nobody else's help.

A text rule looks at one text and names places in it; a body rule looks at the decoded request and names
fields of it. Both are pure and quick: they hold what was compiled from the document and nothing of any
request, so one instance serves all requests at once. Neither ever says what the text was, only where it was
and of which kind: kinds come from a vocabulary that the rule's document fixes, so they can be metric
labels, log fields and verdicts without telling a secret.

Streams rest on one promise of rules that have a ``longest``: whether something is found that starts at a
place depends on at most ``longest`` code points from there on, on one before and on one after them. And
finds are taken from the left: what begins inside an earlier find is none. So a search that goes on, with
one code point of context, behind a place that no find spans, gives exactly the rest of what a search in the
whole text gives, as long as it believes only finds that begin at least ``longest + 1`` code points before
the end of what has come so far.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

MAX_STREAM_MATCH: Final = 512
"""Most code points that a match of a rule may span in stage ``stream``: as much text is held back."""


RuleKey = tuple[str, str]
"""Names of a policy and of a rule in it."""


class Match(NamedTuple):
    """One find in a text."""

    start: int
    """Code points from the beginning of the text."""
    end: int
    """The one after the last; greater than ``start``."""
    kind: str
    """What fired: ``email``, ``word 17``, ``pattern 3``, ``instructionOverride``; never the text."""
    score: float = 1.0
    """How sure it is, 0 to 1."""
    replacement: str | None = None
    """What stands there instead when it is masked; None = the engine chooses."""


class Facts(NamedTuple):
    """What is known of a request beside its body."""

    input_tokens: int | None = None
    """Tokens of the prompt, counted by somebody with the model's tokenizer; None = nobody did."""
    path: str = ""
    """The request's path: some bodies mean different things on different ones."""
    rewrite: str = ""
    """The model that the client has a picker ask for in the place of the body's; empty = none."""


class Removed:
    """The one value that says a field goes away."""

    def __repr__(self) -> str:
        return "REMOVED"


REMOVED: Final = Removed()


class Change(NamedTuple):
    """A field that gets another value, or goes away."""

    keys: tuple[str | int, ...]
    """Names and indices from the body's top; missing objects on the way are made."""
    value: Any
    """Plain JSON, or ``REMOVED``."""


class BodyMatch(NamedTuple):
    """One find in a decoded body."""

    path: str
    """Where: ``max_tokens``, ``messages[2].content[0].image_url``, ``generationConfig.temperature``."""
    kind: str
    """What is wrong: ``tooMany``, ``forbidden``, ``notAllowed``, ``outOfRange``, ``type``, ``size``."""
    changes: tuple[Change, ...] = ()
    """What mode mask makes of it; nothing = it cannot be mended, so mask blocks."""


class TextRule(Protocol):
    """Looks at texts; pure, linear in the text, never raises.

    A rule that has ``is_local`` set finds the same whether a text stands alone or between others, apart from
    them by ``joined.JOINT``; see there.
    """

    @property
    def longest(self) -> int | None:
        """Most code points a match spans, ignorable characters inside it included; at least 1.

        None = it needs the whole text, and has no business in stage ``stream``.
        """

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        """What begins in the text at ``start`` or later, sorted, no two of it overlapping.

        What stands before ``start`` is context: it tells whether a word begins there, and is never part of a
        find.
        """


@runtime_checkable
class ExpectingRule(Protocol):
    """A rule for answers that goes by what the request asked for."""

    def for_answer_to(self, body: Mapping[str, Any]) -> TextRule | None:
        """What looks at the answer to this request in its stead; None = the rule itself does."""


class BodyRule(Protocol):
    """Looks at the decoded request body; pure, never raises."""

    def check(self, body: Mapping[str, Any], facts: Facts) -> Sequence[BodyMatch]:
        """What is wrong with it, in the body's order."""


def by_place(matches: Sequence[BodyMatch]) -> list[BodyMatch]:
    """One of the matches that say the same of the same field."""
    return list({(match.path, match.kind): match for match in reversed(matches)}.values())[::-1]
