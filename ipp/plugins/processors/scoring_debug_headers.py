"""``scoring-debug-headers``: tells clients how the model was selected that answers them.

For finding out why a model is preferred. Names of models and their load are told to whoever asks, so it has
no place before strangers, and may be bound to a header that only those send who are to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final

import msgspec

from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage, ResponseMessage
from ipp.interfaces.selection import Scored, ScoreTrace, Selected
from ipp.plugins.header_names import MAX_VALUE_BYTES, check_header_name, header_value
from ipp.plugins.ttft_scoring import Expectation, Expectations

PREFIX: Final = "x-ipp-scorer-"
SCORES: Final = "x-ipp-scores"


class ScoringDebugHeadersParams(PluginParams, frozen=True, kw_only=True):
    """One field."""

    when_header: Annotated[str, msgspec.Meta(max_length=128)] = ""
    """Only for requests with this header, whatever its value; empty = for all."""

    def __post_init__(self) -> None:
        if self.when_header:
            check_header_name(self.when_header, "whenHeader")


class ScoringDebugHeaders:
    """Answers to requests for which nothing was selected get no headers."""

    info: ClassVar = PluginInfo("scoring-debug-headers", ScoringDebugHeadersParams)

    def __init__(self, name: TypedName, params: ScoringDebugHeadersParams, handle: Handle) -> None:
        self.name = name
        self._when = params.when_header.lower()
        handle.data.table(ScoreTrace).is_wanted = True

    def process_response(self, request: RequestMessage, response: ResponseMessage) -> None:
        """Set the headers."""
        model: str | None = request.state.get(Selected)
        if model is None or (self._when and self._when not in request.headers):
            return
        response.set_header(f"{PREFIX}model", header_value(model))
        scored: Scored | None = request.state.get(Scored)
        if scored is not None:
            response.set_header(SCORES, described(scored))
        expected: Mapping[str, Expectation] = request.state.get(Expectations, {})
        if model in expected:
            for name, value in _numbers(expected[model]):
                response.set_header(f"{PREFIX}{name}", value)


def described(scored: Scored) -> str:
    """``MODEL=TOTAL;SCORER=SCORExWEIGHT;...`` of each model, the highest total first, while there is room."""
    order = sorted(range(len(scored.totals)), key=lambda at: -scored.totals[at])
    said = ""
    for at in order:
        parts = [f"{scored.candidates[at]}={scored.totals[at]:.3f}"]
        parts += [f"{name}={scores[at]:.3f}x{weight:g}" for name, weight, scores in scored.scores]
        more = ", " * bool(said) + header_value(";".join(parts)[:MAX_VALUE_BYTES])
        if len((said + more).encode()) > MAX_VALUE_BYTES:
            break
        said += more
    return said


def _numbers(expected: Expectation) -> list[tuple[str, str]]:
    """Those of the selected model, times in seconds."""
    summary = expected.summary
    told = [
        ("state", expected.state),
        ("recentn", str(summary.recent)),
        ("inflight", str(expected.in_flight)),
    ]
    times = (("floor", summary.floor), ("p50", summary.median), ("effectivettft", expected.seconds))
    told += [(name, f"{seconds:.3f}") for name, seconds in times if seconds > 0]
    return told + [("explorationsuppressed", "true")] * expected.is_suppressed
