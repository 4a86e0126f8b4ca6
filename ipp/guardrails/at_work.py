"""Rules as policies put them to work: what each is of its document, and who or what judges for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dataplane.config.guardrails import Rule, Stage
from ipp.guardrails.finding import Found
from ipp.guardrails.matches import BodyRule, RuleKey, TextRule
from ipp.guardrails.verdicts import Outcome, Refusal, Verdict

if TYPE_CHECKING:
    from ipp.guardrails.engine import CompiledPolicy

SAID_ONLY: Final = frozenset({"allowPatterns", "jsonSchema", "language", "topics"})
"""Types of rules that say what a text must be: of what people and models say to one another, not of names,
descriptions of tools, their arguments or a model's reasoning."""
RESTORING: Final = "pii"
"""Type of rules whose placeholders are turned back."""


class Asked(Protocol):
    """Somebody else who judges texts."""

    @property
    def is_closed(self) -> bool:
        """Whether no verdict is a match."""

    def ask_later(
        self, policy: CompiledPolicy, stage: Stage, outcome: Outcome, take: Callable[[Outcome], None]
    ) -> None:
        """Ask all whom the policy asks there, and have ``take`` called with what becomes of it."""

    def ask_about(
        self,
        rules: Sequence[RuleAtWork],
        stage: Stage,
        texts: Sequence[tuple[str, str]],
        take: Callable[[Sequence[Verdict], Refusal | None], None],
    ) -> None:
        """Ask these about texts, and have ``take`` called with their verdicts, and what refuses."""

    async def judge(self, stage: Stage, texts: Sequence[tuple[str, str]]) -> float | None:
        """The score of what is at fault, None when nothing is; ``texts`` are paths and what is said there.

        ``UnansweredError`` when no verdict comes in time.
        """


class RuleAtWork(NamedTuple):
    """A rule of a policy, compiled: what does the work, which is nothing here when somebody is asked."""

    policy: str
    rule: Rule
    restores: bool = False
    text: TextRule | None = None
    """For requests."""
    answer: TextRule | None = None
    """For answers; has a ``longest`` when it looks at streams."""
    body: BodyRule | None = None
    asked: Asked | None = None
    holds: bool = False
    """Whether it is for answers that stream as well, which are held back for it."""

    @property
    def key(self) -> RuleKey:
        """What tells it from all others."""
        return self.policy, self.rule.name

    def looks_at(self, stage: Stage) -> bool:
        """Whether it is for that stage."""
        return stage in (self.rule.stages or ("request",))

    def at(self, stage: Stage) -> TextRule | None:
        """What looks at texts there; None when nothing does."""
        if not self.looks_at(stage):
            return None
        return self.text if stage == "request" else self.answer

    def verdict(self, stage: Stage, path: str, found: Found) -> Verdict:
        """The verdict on a find in a text."""
        start, end, match = found.start, found.end, found.match
        return Verdict(
            policy=self.policy,
            rule=self.rule.name,
            type=self.rule.type,
            kind=match.kind,
            stage=stage,
            action=self.rule.mode,
            path=path,
            start=start,
            end=end,
            score=match.score,
            latency_us=found.latency_ns // 1000,
        )
