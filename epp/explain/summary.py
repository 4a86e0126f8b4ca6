"""A decision in one line, for the response header of a request that asked for it.

``key=value`` pairs joined by ``"; "``, printable ASCII and at most ``MAX_BYTES``. ``id`` comes first,
percent-encoded as ``/debug/decisions/{id}`` takes it. What names endpoints is only there when the operator
allows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from epp.decisions import DecisionRecord
from epp.interfaces.trace import DecisionTrace

MAX_BYTES: Final = 1024
"""Pairs that would exceed it are left out, from the end."""

MAX_VALUE: Final = 300
"""Bytes of one value; an address or a name is shorter, a request id that is longer is cut."""

_SAFE: Final = " :[],'()/+"
"""What addresses and sentences are made of besides letters, digits and ``_.-~``."""


def summarize(record: DecisionRecord, *, full: bool) -> str:
    """The line. ``full`` adds endpoints, scores and the reason of a rejection."""
    line = ""
    for key, value in _pairs(record, full=full):
        pair = f"{'; ' if line else ''}{key}={_encoded(value, '' if key == 'id' else _SAFE)}"
        if len(line) + len(pair) <= MAX_BYTES:
            line += pair
    return line


def _pairs(record: DecisionRecord, *, full: bool) -> Iterator[tuple[str, str]]:
    yield "id", record.request_id
    if record.error:
        yield "stage", record.stage
        yield "status", str(record.status)
    yield "config", record.config
    if full:
        if record.trace is not None:
            yield from _details(record.trace)
        if record.total_blocks:
            yield "prefix", f"{record.matched_blocks:g}/{record.total_blocks}"
        if record.error:
            yield "reason", record.error


def _details(trace: DecisionTrace) -> Iterator[tuple[str, str]]:
    yield "candidates", f"{trace.candidates}/{trace.pool}"
    for profile in trace.profiles:
        if profile.name == trace.primary and profile.rows is not None:
            first = profile.picked[0]
            yield "endpoint", first.key
            yield "name", first.name
            yield "score", f"{profile.won:.4g}"
            if profile.ties > 1:
                yield "ties", str(profile.ties)
            runner_up = profile.runner_up()
            if runner_up is not None:
                yield "runnerUp", runner_up[0].key
                yield "margin", f"{profile.won - runner_up[1]:.4g}"
        elif profile.name == trace.prefill:
            yield "prefill", profile.picked[0].key
    if trace.left_out:
        yield "leftOut", ",".join(trace.left_out)


def _encoded(value: str, safe: str) -> str:
    """Percent-encoded; cut so that no escape is cut."""
    encoded = quote(value.encode("utf-8", "surrogateescape"), safe=safe)
    if len(encoded) <= MAX_VALUE:
        return encoded
    cut = encoded[:MAX_VALUE]
    percent = cut.rfind("%")
    return cut[:percent] if percent > MAX_VALUE - 3 else cut
