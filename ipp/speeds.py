"""How fast each model answers, as far as answers that have passed tell."""

from __future__ import annotations

from typing import Final

from ipp.interfaces.models import MAX_MODELS, Table

STEP: Final = 0.2
"""How far the average time to the first byte moves towards each new one."""
HALF_LIFE_S: Final = 300.0
"""After so long what was observed counts half."""


class Speed:
    """Of one model."""

    __slots__ = ("_answers", "_at", "_seconds", "_tokens", "average_ttft")

    def __init__(self) -> None:
        self.average_ttft: float | None = None
        """Moving average of the seconds to the first byte; None before the first."""
        self._tokens = self._seconds = self._answers = self._at = 0.0

    def began(self, seconds: float) -> None:
        """An answer's first byte has taken so long."""
        last = self.average_ttft
        self.average_ttft = seconds if last is None else last + STEP * (seconds - last)

    def ended(self, tokens: int, seconds: float, now: float) -> None:
        """An answer of so many tokens has taken so long."""
        kept = 0.5 ** ((now - self._at) / HALF_LIFE_S) if self._answers else 0.0
        self._tokens = self._tokens * kept + tokens
        self._seconds = self._seconds * kept + seconds
        self._answers = self._answers * kept + 1
        self._at = now

    @property
    def tokens_per_second(self) -> float:
        """Of one answer; 0 when nothing is known."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0

    @property
    def tokens_per_answer(self) -> float:
        """0 when nothing is known."""
        return self._tokens / self._answers if self._answers else 0.0


class ModelSpeeds(Table):
    """The speeds of all models. Those who need them say so when they are built."""

    what = "how fast each model answers"
    provider = "request-metadata-extractor"

    def __init__(self) -> None:
        self.by_model: dict[str, Speed] = {}
        self.wants_first_byte = False
        self.wants_usage = False

    def of(self, model: str) -> Speed | None:
        """That of a model, made when it is first asked for; None when there are too many."""
        found = self.by_model.get(model)
        if found is None and len(self.by_model) < MAX_MODELS:
            found = self.by_model[model] = Speed()
        return found
