"""One exchange in the payload processor: what Envoy's ext_proc stream drives.

Reads top to bottom: the complete request passes the pipeline that was current when it came, and is answered
with all changes at once; the response's headers are changed and its body passes through what the profile's
plugins ask for, which is nothing where nobody needs it. A request without a body is sent on as it is, but for
headers that no client may set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from time import perf_counter
from typing import Final, NamedTuple

from dataplane.errors import InternalError, RequestError
from dataplane.extproc.events import BodyTransform, EndBody, LaterBody, MetadataValues, Proceed
from dataplane.extproc.exchange import Decision, Ending, Exchange, HttpRequest, HttpResponse, Resume
from dataplane.headers import BODY_DIGESTS
from dataplane.observability.numbers import Histogram
from dataplane.payload.openai_usage import UsageReader
from dataplane.payload.usage_readers import usage_reader
from ipp.interfaces.message import RequestMessage, ResponseMessage
from ipp.interfaces.plugins import ExchangeObserver
from ipp.metrics import IppMetrics
from ipp.pipeline import GuardianStep, Pipeline, Profile, RequestStep, ResponseStep

UNCHANGED: Final = Proceed()


class _Waiting(NamedTuple):
    """A plugin that waits for somebody."""

    awaitable: Awaitable[None]
    duration: Histogram
    since: float
    """When it began, by ``perf_counter``."""


class ProcessorHandler:
    """What all exchanges of one processor share. ``open`` makes the exchange of a new stream."""

    def __init__(self, pipeline: Pipeline, metrics: IppMetrics) -> None:
        self.pipeline = pipeline
        self.metrics = metrics
        self._unseen: UnseenExchange | None = None
        """The last one made; it serves any number of streams."""

    def open(self) -> Exchange:
        """The exchange of one stream, on the pipeline that is current now."""
        pipeline = self.pipeline.now()
        if not pipeline.is_idle or pipeline.always is None:
            return ProcessorExchange(pipeline, self.metrics)
        unseen = self._unseen
        if unseen is None or unseen.profile is not pipeline.always:
            unseen = self._unseen = UnseenExchange(pipeline.always, self.metrics)
        return unseen


class UnseenExchange:
    """Requests and responses that nothing looks at; it keeps nothing of any of them."""

    needs_request_body = False
    observes_response_body = False

    def __init__(self, profile: Profile, metrics: IppMetrics) -> None:
        self.profile = profile
        self._metrics = metrics

    def on_request(self, _: HttpRequest, __: Resume) -> Decision:
        """Count it."""
        metrics = self._metrics
        metrics.success.inc()
        self.profile.requests.inc()
        metrics.processing.observe(0.0)
        return UNCHANGED

    def on_response_headers(self, response: HttpResponse) -> Decision:
        """Go on."""
        if response.status >= 500:
            self._metrics.failed += 1
        return UNCHANGED

    def on_response_chunk(self, chunk: bytes, end: bool) -> MetadataValues | None:
        """Nothing to watch."""
        return None

    def on_end(self, ending: Ending) -> None:
        """Nothing to release."""


class ProcessorExchange:
    """One request and its response."""

    __slots__ = (
        "_guards",
        "_metrics",
        "_observers",
        "_pipeline",
        "_profile",
        "_request",
        "_sent",
        "_started",
        "_status",
        "_steps",
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
        self._steps: Iterator[RequestStep] = iter(pipeline.before)
        """Plugins that have still to run, up to where the profile is picked."""
        self._observers: list[ExchangeObserver] | None = None
        self._guards: Sequence[GuardianStep] = ()
        self._task: asyncio.Task[None] | None = None
        self._sent = False
        self._started = 0.0
        self._status = 0
        self._usage: UsageReader | None = None
        self.needs_request_body = pipeline.needs_request_body
        self.observes_response_body = False

    def on_request(self, request: HttpRequest, resume: Resume) -> Decision | None:
        """Run the pipeline; None while a plugin waits for somebody."""
        pipeline = self._pipeline
        self._started = perf_counter()
        message = RequestMessage(request)
        if pipeline.owned_headers:
            for name in request.headers.present(pipeline.owned_headers):
                message.remove_header(name)
        if not request.body and self.needs_request_body:
            try:
                return self._unprocessed(message, is_unseen=request.body is None)
            except RequestError as error:
                self._metrics.rejected(error)
                raise
        self._request = message
        try:
            waiting = self._run(message, self._started)
        except RequestError as error:
            self._metrics.rejected(error)
            raise
        if waiting is None:
            return self._answer(message)
        self._task = asyncio.get_running_loop().create_task(self._wait(waiting, message, resume))
        return None

    async def _wait(self, waiting: _Waiting, message: RequestMessage, resume: Resume) -> None:
        """Go on when what a plugin waits for is there."""
        outcome: Decision | Exception
        pending: _Waiting | None = waiting
        try:
            while pending is not None:
                await pending.awaitable
                now = perf_counter()
                pending.duration.observe(now - pending.since)
                pending = self._run(message, now)
            outcome = self._answer(message)
        except RequestError as error:
            self._metrics.rejected(error)
            outcome = error
        except Exception as error:  # noqa: BLE001 - it is the session's, as if it had been raised at once
            outcome = error
        self._task = None
        resume(outcome)

    def _run(self, message: RequestMessage, now: float) -> _Waiting | None:
        """Run the request plugins that are left, up to one that waits; ``now`` is by ``perf_counter``."""
        while True:
            for plugin, duration, observer in self._steps:
                if observer is not None:
                    self._observers = [*(self._observers or ()), observer]
                awaitable = plugin.process_request(message)
                if awaitable is not None:
                    return _Waiting(awaitable, duration, now)
                began, now = now, perf_counter()
                duration.observe(now - began)
            if self._profile is not None:
                return None
            self._profile = profile = self._pipeline.always or self._picked(message)
            message.profile = profile.name
            self._steps = iter(profile.request)
            if self._pipeline.always is None:
                now = perf_counter()

    def _picked(self, message: RequestMessage) -> Profile:
        pipeline = self._pipeline
        name = pipeline.picker.pick(message, pipeline.profiles.keys())
        profile = pipeline.profiles.get(name)
        if profile is None:
            raise InternalError(f"no profile for the request: there is none named '{name[:60]}'")
        return profile

    def _unprocessed(self, message: RequestMessage, *, is_unseen: bool) -> Proceed:
        """A request without a body: nothing in it says where it goes. Its answer may have to be seen.

        ``is_unseen``: it has one, which the gateway does not show.
        """
        if is_unseen:
            for plugin in self._pipeline.body_guardians:
                plugin.refuse_unseen(message)
        guards = self._pipeline.guardians
        if guards:
            self._request, self._guards = message, guards
            for step in guards:
                step.plugin.expect_answer(message)
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
        if self._task is not None:
            self._stop_waiting()
        if response.status >= 500:
            self._metrics.failed += 1
        request, profile = self._request, self._profile
        if request is None:
            return UNCHANGED
        pipeline = self._pipeline
        if self._sent and pipeline.extractors:
            self._observe(request, response)
        message: ResponseMessage | None = None
        transforms: list[BodyTransform] = []
        groups: tuple[Sequence[ResponseStep | GuardianStep], ...] = (self._guards,)
        if not self._guards:
            groups = (() if profile is None else profile.response, pipeline.after)
        for steps in groups:
            for plugin, duration, sees in steps:
                if sees is not None and not sees(request):
                    continue
                message = message or ResponseMessage(response)
                started = perf_counter()
                try:
                    transform = plugin.process_response(request, message)
                except RequestError as error:
                    self._metrics.answer_refused(error)
                    raise
                duration.observe(perf_counter() - started)
                if transform is not None:
                    transforms.append(transform)
        if message is None or not (message.set_headers or message.removed_headers or transforms):
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
        if self._task is not None:
            self._stop_waiting()
        request = self._request
        if request is None:
            return
        for observer in self._observers or ():
            observer.exchange_ended(request, ending)
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
