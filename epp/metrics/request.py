"""What is counted about one kind of request: same model, target model, fairness id and priority.

One ``RequestMetrics`` serves all requests of a kind, so it holds numbers and no state of any one request.
The caller promises one ``finished`` for each ``started``; errors are counted beside that.
"""

from __future__ import annotations

from dataplane.observability.numbers import Counter, Histogram
from epp.interfaces.request import ResponseSummary
from epp.metrics.catalog import RequestFamilies


class RequestMetrics:
    """The numbers of one kind of request, created when first touched."""

    __slots__ = (
        "_cached",
        "_duration",
        "_errors",
        "_families",
        "_input",
        "_itl",
        "_labels",
        "_ntpot",
        "_output",
        "_request_size",
        "_response_size",
        "_running",
        "_total",
        "_tpot",
        "_ttft",
    )

    def __init__(self, families: RequestFamilies, labels: tuple[str, str, str, str]) -> None:
        self._families = families
        self._labels = labels
        self._total: Counter | None = None
        self._ttft: dict[str, Histogram] = {}
        self._errors: dict[str, Counter] = {}

    def started(self, size_bytes: int) -> None:
        """A request was given an endpoint; its body has this many bytes."""
        total = self._total or self._open()
        total.value += 1
        self._running.value += 1
        self._request_size.observe(size_bytes)

    def error(self, code: str) -> None:
        """A request ended in an error; ``code`` is that of the error class."""
        counter = self._errors.get(code)
        if counter is None:
            counter = self._errors[code] = self._families.errors.child(*self._labels, code)
        counter.value += 1

    def first_byte(self, ttft_s: float) -> None:
        """A streamed response body has begun, so long after the request was complete."""
        self._observe_ttft(ttft_s, "true")

    def chunk_gap(self, seconds: float) -> None:
        """A streamed response went on after this pause. Only between ``started`` and ``finished``."""
        self._itl.observe(seconds)

    def finished(self, summary: ResponseSummary) -> None:
        """A started request is over, however it ended."""
        self._running.value -= 1
        self._duration.observe(summary.duration_s)
        self._response_size.observe(summary.response_bytes)
        if not summary.streaming and summary.ttft_s is not None:
            self._observe_ttft(summary.duration_s, "false")
        usage = summary.usage
        if usage is None:
            return
        if usage.prompt_tokens is not None:
            self._input.observe(usage.prompt_tokens)
        if usage.cached_tokens is not None:
            self._cached.observe(usage.cached_tokens)
        output = usage.completion_tokens
        if output is not None:
            self._output.observe(output)
            if output > 0:
                self._ntpot.observe(summary.duration_s / output)
            if output > 1 and summary.streaming and summary.ttft_s is not None:
                self._tpot.observe((summary.duration_s - summary.ttft_s) / (output - 1))

    def _observe_ttft(self, seconds: float, streaming: str) -> None:
        """The field's convention: an answer that is not streamed has its first token when it is whole."""
        histogram = self._ttft.get(streaming)
        if histogram is None:
            histogram = self._ttft[streaming] = self._families.ttft.child(*self._labels, streaming)
        histogram.observe(seconds)

    def _open(self) -> Counter:
        """Create the numbers; they are exposed from here on."""
        families, labels = self._families, self._labels
        self._total = families.total.child(*labels)
        self._running = families.running.child(*labels)
        self._request_size = families.request_size.child(*labels)
        self._response_size = families.response_size.child(*labels)
        self._duration = families.duration.child(*labels)
        self._input = families.input_tokens.child(*labels)
        self._cached = families.cached_tokens.child(*labels)
        self._output = families.output_tokens.child(*labels)
        self._ntpot = families.ntpot.child(*labels)
        self._tpot = families.tpot.child(*labels)
        self._itl = families.itl.child(*labels)
        return self._total
