"""Slow start: an endpoint that is new or back gets its share of the load little by little.

An idle endpoint looks best to every scorer that balances load, so all requests of a moment would go to a
server whose caches are cold and whose kernels are not compiled yet. While it warms up it gets credit for
being idle in a growing part of the requests only:

    share = initialShare + (1 - initialShare) * age / window      of the full credit, 1 when warm
    one number is drawn per decision, evenly from 0 to 1; endpoints whose share, divided by the largest share
    among the candidates, is not above it are held back in this decision

A candidate that is held back keeps what affinity scorers give it (prefix, session and adapter matches are
real), and of the others' weighted sum it keeps no more than the worst of those not held back, less a trace,
so that it also loses ties. Thus it is chosen as often as it would be anyway, times its share, whatever the
scorers and the picker are; a pool in which all are equally new behaves as if all were warm.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import numpy as np

from dataplane.config.resilience import SlowStartSpec
from epp.interfaces.endpoint import Candidates, EndpointTable, Floats, Slots
from epp.interfaces.scheduling import ScorerTrace

TRACE_NAME: Final = "slow-start"
"""Under which name the deduction is shown among the scorers of a decision."""

SWEEP_S: Final = 0.1
"""How often it is looked who is warm; one whose window is over has its full share anyway."""

TIE: Final = 1e-9
"""What is deducted so that a tie is lost."""


class SlowStart:
    """Holds warming endpoints of one table back."""

    def __init__(self, table: EndpointTable, policy: SlowStartSpec, rng: random.Random) -> None:
        self._table = table
        self._rng = rng
        self.policy = policy
        self.now = 0.0
        """Time of the present decision."""
        self._swept = 0.0

    def configure(self, policy: SlowStartSpec, now: float) -> None:
        """Warm up by another policy from now on."""
        self.policy = policy
        self._sweep(now)

    def tick(self, now: float) -> None:
        """A decision begins; endpoints whose window is over are warm, and all without slow start."""
        self.now = now
        if now - self._swept >= SWEEP_S:
            self._sweep(now)

    def settle(self) -> None:
        """All endpoints known by now are warm: a picker that starts cannot tell how long they have run."""
        self._table.warmed_up(np.inf)

    def _sweep(self, now: float) -> None:
        self._swept = now
        self._table.warmed_up(now - self.policy.window if self.policy.enabled else np.inf)

    def share(self, slots: Slots | int, now: float) -> Floats:
        """Part of the full credit of endpoints in these slots, at most 1."""
        policy, since = self.policy, self._table.warm_since[slots]
        grown = policy.initial_share + (1 - policy.initial_share) * (now - since) / policy.window
        share: Floats = np.where(since > 0, np.clip(grown, policy.initial_share, 1.0), 1.0)
        return share

    def hold_back(
        self, candidates: Candidates, totals: Floats, scorers: Sequence[ScorerTrace], affine: Sequence[bool]
    ) -> ScorerTrace | None:
        """Deduct in place from the totals of those held back; the deduction, None when nobody is.

        ``affine`` says which scorers are about affinity.
        """
        share = self.share(candidates.slots, self.now)
        most = share.max()
        if share.min() == most:
            return None
        held = self._rng.random() * most >= share
        if not held.any():
            return None
        kept = np.zeros(len(candidates))
        for scorer, is_affine in zip(scorers, affine, strict=True):
            if is_affine:
                kept += np.asarray(scorer.scores) * scorer.weight
        cap = (totals - kept)[~held].min()
        lowered = np.minimum(totals, kept + cap) - TIE
        deduction = np.where(held, np.maximum(lowered, 0.0) - totals, 0.0)
        totals += deduction
        return ScorerTrace(TRACE_NAME, 1.0, deduction)
