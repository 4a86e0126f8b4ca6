"""Requests and errors of a picker for a rollout's guard: read from its metrics, counted from a moment on.

A request counts when it was given an endpoint or was refused for a reason that is not its sender's. It is an
error when it was so refused, when it failed later, or when the model server answered with an error.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final, NamedTuple

from epp.metrics.snapshot import MODEL_SERVER_ERROR, NOT_THE_SENDERS

TOTAL: Final = "llm_d_epp_request_total{"
ERRORS: Final = "llm_d_epp_request_error_total{"

_CODE: Final = re.compile(r'error_code="([^"]*)"')


class Counts(NamedTuple):
    """Totals; never more errors than requests."""

    requests: int = 0
    errors: int = 0


def read_counts(page: str) -> Counts:
    """The totals of a page of metrics. ``ValueError`` for a page that is none."""
    requests = errors = 0
    for line in page.splitlines():
        if line.startswith(TOTAL):
            requests += int(float(line.rpartition(" ")[2]))
        elif line.startswith(ERRORS):
            codes = _CODE.findall(line)
            if codes and codes[-1] in NOT_THE_SENDERS:
                count = int(float(line.rpartition(" ")[2]))
                errors += count
                requests += 0 if codes[-1] == MODEL_SERVER_ERROR else count
    return Counts(requests, min(errors, requests))


class Since:
    """Counts since something began, over processes that begin anew at zero."""

    def __init__(self) -> None:
        self._what: Hashable = None
        self._pid = 0
        self._base = Counts()
        self._before = Counts()
        """Of processes that have ended."""
        self._last = Counts()

    def count(self, what: Hashable, pid: int, now: Counts) -> Counts:
        """Counts since ``what`` was first seen here; ``now`` are the totals of the process."""
        if what != self._what:
            self._what, self._pid, self._base, self._before = what, pid, now, Counts()
        elif pid != self._pid:
            self._pid, self._base, self._before = pid, Counts(), self._last
        requests = self._before.requests + max(0, now.requests - self._base.requests)
        errors = self._before.errors + max(0, now.errors - self._base.errors)
        self._last = Counts(requests, min(errors, requests))
        return self._last
