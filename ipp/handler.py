"""One exchange in the payload processor: what Envoy's ext_proc stream drives.

Reads top to bottom: the complete request passes the pipeline that was current when it came, and is answered
with all changes at once; the response's headers are changed and its body passes through what the profile's
plugins ask for, which is nothing where nobody needs it. A request without a body is sent on as it is, but for
headers that no client may set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from functools import partial
from time import perf_counter
from typing import Final, TypeAlias

from dataplane.errors import InternalError, RequestError
from dataplane.extproc.events import BodyTransform, EndBody, LaterBody, MetadataValues, Proceed
from dataplane.extproc.exchange import Decision, Ending, HttpRequest, HttpResponse, Resume
from dataplane.headers import BODY_DIGESTS
from dataplane.payload.openai_usage import UsageReader
from dataplane.payload.usage_readers import usage_reader
from ipp.interfaces.message import RequestMessage, ResponseMessage
from ipp.metrics import IppMetrics
from ipp.pipeline import Pipeline, Profile, RequestStep, ResponseStep

UNCHANGED: Final = Proceed()

_Waits: TypeAlias = Generator[Awaitable[None], None, None]
"""Plugins at work, and what they have to wait for."""


class ProcessorHandler:
    """What all exchanges of one processor share. ``open`` makes the exchange of a new stream."""

    def __init__(self, pipeline: Pipeline, metrics: IppMetrics) -> None:
        self.pipeline = pipeline
        self.metrics = metrics

    def open(self) -> ProcessorExchange:
        """The exchange of one stream, on the pipeline that is current now."""
        return ProcessorExchange(self.pipeline, self.metrics)


class ProcessorExchange:
    """One request and its response."""

    __slots__ = (
        "_metrics",
        "_observers",
        "_pipeline",
        "_profile",
        "_request",
        "_sent",
        "_started",
        "_status",
        "_task",
        "_usage",
        "needs_request_body",
        "observes_response_body",
    )

    def __init__(self, pipeline: Pipeline, metrics: IppMetrics) -> None:
        self._pipeline = pipeline
        self._metrics = metrics
        self._request: RequestMessage | None = None
        self._profile: Profile | None = None
        self._observers: list[RequestStep] = []
        self._task: asyncio.Task[None] | None = None
        self._sent = False
        self._started = 0.0
        self._status = 0
        self._usage: UsageReader | None = None
        self.needs_request_body = pipeline.needs_request_body
        self.observes_response_body = False

    def on_request(self, request: HttpRequest, resume: Resume) -> Decision | None:
        """Run the pipeline; None while a plugin waits for somebody."""
        self._started = perf_counter()
        message = RequestMessage(request)
        for name in request.headers.present(self._pipeline.owned_headers):
            message.remove_header(name)
        if not request.body and self.needs_request_body:
            return self._unprocessed(message)
        self._request = message
        pending = self._run(message)
        try:
            first = next(pending)
        except StopIteration:
            return self._answer(message)
        except RequestError as error:
            self._metrics.rejected(error)
            raise
        self._task = asyncio.get_running_loop().create_task(self._wait(first, pending, message, resume))
        return None

    async def _wait(
        self,
        first: Awaitable[None],
        pending: _Waits,
        message: RequestMessage,
        resume: Resume,
    ) -> None:
        """Go on when what a plugin waits for is there."""
        outcome: Decision | Exception
        try:
            await first
            for each in pending:
                await each
            outcome = self._answer(message)
        except RequestError as error:
            self._metrics.rejected(error)
            outcome = error
        except Exception as error:  # noqa: BLE001 - it is the session's, as if it had been raised at once
            outcome = error
        self._task = None
        resume(outcome)

    def _run(self, message: RequestMessage) -> _Waits:
        """Run every request plugin; gives out what has to be waited for."""
        pipeline = self._pipeline
        for step in pipeline.before:
            yield from self._step(step, message)
        name = pipeline.picker.pick(message, pipeline.profiles.keys())
        profile = pipeline.profiles.get(name)
        if profile is None:
            raise InternalError(f"no profile for the request: there is none named '{name[:60]}'")
        self._profile, message.profile = profile, name
        for step in profile.request:
            yield from self._step(step, message)

    def _step(self, step: RequestStep, message: RequestMessage) -> _Waits:
        started = perf_counter()
        if step.observer is not None:
            self._observers.append(step)
        waits = step.plugin.process_request(message)
        if waits is not None:
            yield waits
        step.duration.observe(perf_counter() - started)

    def _unprocessed(self, message: RequestMessage) -> Proceed:
        """A request without a body: nothing in it says where it goes."""
        if not message.removed_headers:
            return UNCHANGED
        return Proceed(remove_headers=list(message.removed_headers), clear_route_cache=True)

    def _answer(self, message: RequestMessage) -> Proceed:
        """All changes at once; routes are matched again on them."""
        metrics = self._metrics
        metrics.success.inc()
        if self._profile is not None:
            self._profile.requests.inc()
        metrics.processing.observe(perf_counter() - self._started)
        self._sent = True
        for extractor in self._pipeline.extractors:
            extractor.request_sent(message)
        if not (message.set_headers or message.removed_headers or message.is_body_changed):
            return UNCHANGED
        if message.is_body_changed:
            for name in message.headers.present(BODY_DIGESTS):
                message.remove_header(name)
        return Proceed(
            set_headers=message.encoded(),
            remove_headers=list(message.removed_headers),
            clear_route_cache=True,
            body=message.body if message.is_body_changed else None,
        )

    def on_response_headers(self, response: HttpResponse) -> Decision:
        """Change the headers, and choose what the body passes through."""
        self._stop_waiting()
        request, profile = self._request, self._profile
        if self._sent and request is not None and self._pipeline.extractors:
            self._observe(request, response)
        steps: Sequence[ResponseStep] = (
            self._pipeline.after if profile is None else (*profile.response, *self._pipeline.after)
        )
        if request is None or not steps:
            return UNCHANGED
        message = ResponseMessage(response)
        transforms: list[BodyTransform] = []
        for step in steps:
            started = perf_counter()
            transform = step.plugin.process_response(request, message)
            step.duration.observe(perf_counter() - started)
            if transform is not None:
                transforms.append(transform)
        if not (message.set_headers or message.removed_headers or transforms):
            return UNCHANGED
        if transforms:
            for name in message.headers.present(BODY_DIGESTS):
                message.remove_header(name)
        return Proceed(
            set_headers=message.encoded(),
            remove_headers=list(message.removed_headers),
            transform=chained(transforms),
        )

    def _observe(self, request: RequestMessage, response: HttpResponse) -> None:
        """See to it that those learn of the body who have to."""
        pipeline = self._pipeline
        if pipeline.first_byte_extractors:
            self._status, self.observes_response_body = response.status, True
        if pipeline.usage_extractors and 200 <= response.status < 300:
            is_stream = ResponseMessage(response).is_event_stream
            self._usage = usage_reader(request.headers.get(":path"), streaming=is_stream)
            self.observes_response_body = True

    def on_response_chunk(self, chunk: bytes, end: bool) -> MetadataValues | None:
        """Tell of the first byte, and look for usage; what needs more of the body transforms it."""
        if chunk and self.observes_response_body and self._request is not None:
            if self._status:
                for extractor in self._pipeline.first_byte_extractors:
                    extractor.first_byte(self._request, self._status)
                self._status = 0
            if self._usage is None:
                self.observes_response_body = False
            else:
                self._usage.feed(chunk)
        return None

    def on_end(self, ending: Ending) -> None:
        """Let everybody who saw the request know that it is over."""
        self._stop_waiting()
        request = self._request
        if request is None:
            return
        for step in self._observers:
            if step.observer is not None:
                step.observer.exchange_ended(request, ending)
        if self._sent:
            if self._usage is not None:
                usage = self._usage.finish()
                for each in self._pipeline.usage_extractors:
                    each.answer_used(request, usage)
            for extractor in self._pipeline.extractors:
                extractor.exchange_over(request, ending)

    def _stop_waiting(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()


def _pass_on(transforms: Sequence[BodyTransform], body: bytes, take: Callable[[bytes], None]) -> None:
    """The last bytes of a body, which came later, on their way through the transforms that are left."""
    for at, transform in enumerate(transforms):
        try:
            body = transform.feed(body, True)
        except EndBody as error:
            body = error.last
        except LaterBody as later:
            _later(later, transforms[at + 1 :]).start(take)
            return
    take(body)


def _later(later: LaterBody, transforms: Sequence[BodyTransform]) -> LaterBody:
    """The same, with what the transforms make of the last bytes."""
    return LaterBody(lambda take: later.start(partial(_pass_on, transforms, take=take)))


class _Chain:
    """Several transforms, one behind the other."""

    __slots__ = ("_transforms",)

    def __init__(self, transforms: Sequence[BodyTransform]) -> None:
        self._transforms = transforms

    def feed(self, chunk: bytes, end: bool) -> bytes:
        """A transform that ends the body ends it for those behind it too, which see its last bytes."""
        cut = False
        for at, transform in enumerate(self._transforms):
            try:
                chunk = transform.feed(chunk, end)
            except EndBody as error:
                chunk, end, cut = error.last, True, True
            except LaterBody as later:
                raise _later(later, self._transforms[at + 1 :]) from None
        if cut:
            raise EndBody(chunk)
        return chunk


def chained(transforms: Sequence[BodyTransform]) -> BodyTransform | None:
    """One transform for several; None for none."""
    if len(transforms) < 2:
        return transforms[0] if transforms else None
    return _Chain(transforms)
