"""Numbers of one discovery server, for Prometheus. Owned by its event loop.

Labels are bounded by what this server knows: kinds of nodes, types of resources, gRPC's status codes. What a
client names is counted as ``other``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from controlplane.xds.nodes import CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET, SUBSCRIBERS, NodeKind
from dataplane.observability.exposition import MetricSet
from dataplane.observability.numbers import OTHER
from dataplane.xds.messages import GUARDRAILS, PICKER_CONFIG, POOL_OBJECTS, PROCESSOR_CONFIG, STATIC_GATEWAY

TYPES: Final = {
    type_url: type_url.rpartition(".")[2]
    for type_url in (
        *(CLUSTER, ENDPOINTS, LISTENER, ROUTES, SECRET),
        *(POOL_OBJECTS, PICKER_CONFIG, PROCESSOR_CONFIG, GUARDRAILS, STATIC_GATEWAY),
    )
}
"""Type -> the label it is counted under."""
SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30)

OpenStreams = Callable[[], Iterable[NodeKind]]


class XdsMetrics:
    """What is counted, and where."""

    def __init__(self) -> None:
        self.numbers = numbers = MetricSet()
        by_type, kind = ("type",), ("kind",)
        counter = numbers.counter
        self._streams = counter("pointsman_xds_streams_total", "Streams served", kind)
        self._refused = counter(
            "pointsman_xds_streams_refused_total", "Streams not begun, by gRPC status", ("code",)
        )
        self._cut = counter("pointsman_xds_streams_cut_total", "Streams ended by this server", kind)
        self._pushes = counter("pointsman_xds_pushes_total", "Responses sent", by_type)
        self._bytes = counter("pointsman_xds_push_bytes_total", "Bytes of responses sent", by_type)
        self._resources = counter("pointsman_xds_push_resources_total", "Resources in them", by_type)
        self._acks = counter("pointsman_xds_acks_total", "Sets that workers accepted", by_type)
        self._nacks = counter("pointsman_xds_nacks_total", "Sets that workers refused", by_type)
        self._dropped = counter(
            "pointsman_xds_answers_dropped_total", "Answers that the database did not take in time"
        ).child()
        self._failures = counter(
            "pointsman_xds_database_failures_total", "Rounds in which the database failed"
        ).child()
        self._build = numbers.histogram(
            "pointsman_xds_build_seconds", "Time to read and build what is sent", SECONDS
        ).child()
        self._delay = numbers.histogram(
            "pointsman_xds_publish_to_push_seconds", "From a change to a stream being sent it", SECONDS
        ).child()

    def watch(self, streams: OpenStreams, waiting: Callable[[], int], number: Callable[[], int]) -> None:
        """Have the present state shown as well: open streams, answers on their way, the change in use."""

        def open_streams() -> Iterable[tuple[Sequence[str], float]]:
            kinds = list(streams())
            return [((kind,), float(kinds.count(kind))) for kind in SUBSCRIBERS]

        show = self.numbers.computed
        show("pointsman_xds_streams_open", "Streams at this moment", ("kind",), open_streams)
        show(
            "pointsman_xds_answers_waiting",
            "Answers of workers the database does not have yet",
            (),
            lambda: [((), float(waiting()))],
        )
        show(
            "pointsman_xds_change", "Number of the change that is served", (), lambda: [((), float(number()))]
        )

    def began(self, kind: NodeKind) -> None:
        """A stream is served."""
        self._streams.child(kind).inc()

    def refused(self, code: str) -> None:
        """A stream is not begun; ``code`` is the name of a gRPC status."""
        self._refused.child(code).inc()

    def cut(self, kind: NodeKind) -> None:
        """A stream is ended from here."""
        self._cut.child(kind).inc()

    def pushed(self, type_url: str, size: int, resources: int) -> None:
        """A response goes out."""
        label = TYPES.get(type_url, OTHER)
        self._pushes.child(label).inc()
        self._bytes.child(label).inc(size)
        self._resources.child(label).inc(resources)

    def answered(self, type_url: str, *, is_refusal: bool) -> None:
        """A worker has said what it makes of a set."""
        family = self._nacks if is_refusal else self._acks
        family.child(TYPES.get(type_url, OTHER)).inc()

    def dropped(self, count: int) -> None:
        """Answers were given up."""
        self._dropped.inc(count)

    def failed(self) -> None:
        """The database failed."""
        self._failures.inc()

    def built(self, seconds: float) -> None:
        """Something was read and built."""
        self._build.observe(seconds)

    def reached(self, seconds: float) -> None:
        """A change was sent to a stream, so long after it was made."""
        self._delay.observe(seconds)
