"""Which requests have their decision traced, and what a client may be told of it.

A traced request costs some tens of microseconds and some kilobytes, so by default one in a hundred is. A
client may ask for it with the header ``x-pointsman-explain: true``, if the operator lets clients do so:
whoever can ask can have every request traced, push other traces out of the log and, in the mode ``full``,
learn names, addresses and scores of model servers. Off is therefore the default.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable
from typing import Final

from dataplane.errors import RequestError
from dataplane.extproc.events import Reject
from dataplane.extproc.exchange import rejection
from dataplane.headers import EXPLAIN, Headers
from epp.decisions import DecisionRecord
from epp.explain.summary import summarize
from epp.interfaces.request import InferenceRequest
from epp.interfaces.trace import DecisionTrace, Origin

_YES: Final = frozenset({b"true", b"1"})


class ExplainPolicy:
    """Starts traces. ``share`` of all requests, 0 to 1, and those that ask if ``header`` is not ``off``."""

    __slots__ = ("_asking", "_full", "_left", "_origin", "_random", "_share")

    def __init__(
        self,
        share: float,
        header: str,
        rng: Callable[[], float] = random.random,
        origin: Origin = Origin.SAMPLED,
    ) -> None:
        self._share = share
        self._origin = origin
        self._asking = header != "off"
        self._full = header == "full"
        self._random = rng
        self._left = self._gap()

    @classmethod
    def of(cls, share: float, header: str) -> ExplainPolicy | None:
        """The policy; None when no request is ever traced."""
        return cls(share, header) if share or header != "off" else None

    def consider(self, request: InferenceRequest) -> None:
        """Give the request a trace if its decision is to be traced."""
        if self._asking and self.is_asked(request.headers):
            request.trace = DecisionTrace(Origin.ASKED)
        else:
            self._left -= 1
            if self._left < 0:
                self._left = self._gap()
                request.trace = DecisionTrace(self._origin)

    def _gap(self) -> int:
        """How many requests are passed over before the next one that is sampled.

        Drawn once per sample instead of once per request: the gaps of independent draws are geometric.
        """
        if self._share <= 0.0:
            return sys.maxsize
        if self._share >= 1.0:
            return 0
        return int(math.log(1.0 - self._random()) / math.log1p(-self._share))

    def is_asked(self, headers: Headers) -> bool:
        """Whether the client asks, and may."""
        value = headers.raw(EXPLAIN) if self._asking else None
        return value is not None and value.strip().lower() in _YES

    def line(self, record: DecisionRecord) -> bytes:
        """What the response header says about a decision."""
        return summarize(record, full=self._full).encode()

    def rejection(self, error: RequestError, record: DecisionRecord) -> Reject:
        """How a client that asked sees its rejection."""
        reject = rejection(error)
        reject.headers = [*reject.headers, (EXPLAIN, self.line(record))]
        return reject
