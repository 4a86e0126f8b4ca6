"""What answers of each model have cost, as far as usage and prices say: one window after the other."""

from __future__ import annotations

from typing import NamedTuple

from ipp.digest import Digest
from ipp.interfaces.models import MAX_MODELS, Table


class CostLimits(NamedTuple):
    """Of what is kept."""

    compression: float = 200.0
    flush_s: float = 5.0
    """How long what follows from a window is used before it is worked out anew; 0 = not at all."""
    window_s: float = 7200.0
    """After so long everything is forgotten; 0 = never."""


class CostWindow:
    """The costs of one model's answers since the window began, in US dollars."""

    __slots__ = ("_digest", "_means", "_means_at", "since", "total")

    def __init__(self, compression: float, now: float) -> None:
        self.since = now
        self.total = 0.0
        self._digest = Digest(compression)
        self._means: dict[float, tuple[float, float]] = {}
        self._means_at = now

    @property
    def count(self) -> int:
        """Answers."""
        return self._digest.count

    def add(self, dollars: float) -> None:
        """Take one."""
        self._digest.add(dollars)
        self.total += dollars

    def means(self, share: float, now: float, flush_s: float) -> tuple[float, float]:
        """The mean cost of the cheaper ``share`` of answers, and that of the others."""
        if now - self._means_at >= flush_s:
            self._means.clear()
            self._means_at = now
        found = self._means.get(share)
        if found is None:
            found = self._means[share] = self._digest.split(share)
        return found


class CostTable(Table):
    """The windows of all models."""

    what = "what answers of each model cost"
    provider = "model-cost-extractor"

    def __init__(self) -> None:
        self.limits = CostLimits()
        self.by_model: dict[str, CostWindow] = {}

    def add(self, model: str, dollars: float, now: float) -> None:
        """An answer of this model has cost so much. Models beyond a number are left out."""
        window = self.window(model, now)
        if window is None:
            if model not in self.by_model and len(self.by_model) >= MAX_MODELS:
                return
            window = self.by_model[model] = CostWindow(self.limits.compression, now)
        window.add(dollars)

    def window(self, model: str, now: float) -> CostWindow | None:
        """The current window of a model; None when nothing is known in it."""
        found = self.by_model.get(model)
        if found is None or 0 < self.limits.window_s <= now - found.since:
            return None
        return found
