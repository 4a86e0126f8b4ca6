"""gRPC health checking (grpc.health.v1) on the transport of `dataplane.extproc.http2`.

`HealthState` is the one place where a process says how it is: it lives, and it is ready when every named
condition holds and it does not drain. `HealthService` answers Check, List and Watch from it, on the
ext_proc port, on a port of its own, or on both.

    liveness                                                    SERVING while the process lives
    readiness, "", inference-extension, the ext_proc service    SERVING while it is ready
    any other name                                              Check: NOT_FOUND, Watch: SERVICE_UNKNOWN

The messages are two fields long, so they are encoded here by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

from dataplane.extproc.http2 import GrpcStatus, Headers, Services, StreamWriter

EXT_PROC_SERVICE: Final = "envoy.service.ext_proc.v3.ExternalProcessor"
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"
READY_NAMES: Final = ("", READINESS, EXT_PROC_SERVICE, "inference-extension")

_STRING_FIELD_1: Final = 0x0A
_MESSAGE_FIELD_2: Final = 0x12
_ENUM_FIELD_1: Final = 0x08


class ServingStatus(IntEnum):
    """HealthCheckResponse.ServingStatus."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class HealthState:
    """Whether the process is ready, and who wants to hear when that changes."""

    def __init__(self, conditions: Iterable[str] = ()) -> None:
        self._conditions = dict.fromkeys(conditions, False)
        self._draining = False
        self._listeners: dict[int, Callable[[], None]] = {}
        self._next = 0

    @property
    def is_ready(self) -> bool:
        """Every condition holds and the process does not drain."""
        return not self._draining and all(self._conditions.values())

    def unmet(self) -> list[str]:
        """Names of what keeps the process from being ready."""
        names = [name for name, holds in self._conditions.items() if not holds]
        return [*names, "draining"] if self._draining else names

    def set(self, condition: str, holds: bool) -> None:
        """Say whether a condition holds; a name not used before is added."""
        before = self.is_ready
        self._conditions[condition] = holds
        self._tell_if_changed(before)

    def set_draining(self) -> None:
        """Not ready from here on; there is no way back."""
        before = self.is_ready
        self._draining = True
        self._tell_if_changed(before)

    def status(self, service: str) -> ServingStatus:
        """Status of a service name; SERVICE_UNKNOWN when there is no such name."""
        if service == LIVENESS:
            return ServingStatus.SERVING
        if service in READY_NAMES:
            return ServingStatus.SERVING if self.is_ready else ServingStatus.NOT_SERVING
        return ServingStatus.SERVICE_UNKNOWN

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` whenever readiness changes; returns what ends that."""
        key = self._next
        self._next += 1
        self._listeners[key] = listener

        def stop() -> None:
            self._listeners.pop(key, None)

        return stop

    def _tell_if_changed(self, before: bool) -> None:
        if self.is_ready != before:
            for listener in list(self._listeners.values()):
                listener()


class HealthService:
    """Serves one `HealthState`."""

    def __init__(self, state: HealthState) -> None:
        self._state = state

    def services(self) -> Services:
        """Paths and what serves them, to be merged with others."""
        return {
            b"/grpc.health.v1.Health/Check": self._check,
            b"/grpc.health.v1.Health/List": self._list,
            b"/grpc.health.v1.Health/Watch": self._watch,
        }

    def _check(self, writer: StreamWriter, _headers: Headers) -> _Unary:
        return _Unary(writer, self._answer_check)

    def _list(self, writer: StreamWriter, _headers: Headers) -> _Unary:
        return _Unary(writer, self._answer_list)

    def _watch(self, writer: StreamWriter, _headers: Headers) -> _Watch:
        return _Watch(writer, self._state)

    def _answer_check(self, writer: StreamWriter, request: bytes) -> None:
        service = requested_service(request)
        status = self._state.status(service)
        if status is ServingStatus.SERVICE_UNKNOWN:
            known = ", ".join(repr(name) for name in (LIVENESS, *READY_NAMES))
            writer.finish(GrpcStatus.NOT_FOUND, f"unknown service {service[:100]!r}; known are {known}")
            return
        writer.send(encoded_status(status))
        writer.finish()

    def _answer_list(self, writer: StreamWriter, _request: bytes) -> None:
        entries = []
        for name in (LIVENESS, *READY_NAMES):
            value = encoded_status(self._state.status(name))
            entry = _field(_STRING_FIELD_1, name.encode()) + _field(_MESSAGE_FIELD_2, value)
            entries.append(_field(_STRING_FIELD_1, entry))
        writer.send(*entries)
        writer.finish()


class _Unary:
    """One request, one answer, given when the request is complete."""

    def __init__(self, writer: StreamWriter, answer: Callable[[StreamWriter, bytes], None]) -> None:
        self._writer = writer
        self._answer = answer
        self._request: bytes | None = None

    def on_message(self, message: bytes) -> None:
        if self._request is not None:
            self._writer.finish(GrpcStatus.INVALID_ARGUMENT, "more than one request message")
        self._request = message

    def on_half_close(self) -> None:
        if self._request is None:
            self._writer.finish(GrpcStatus.INVALID_ARGUMENT, "no request message")
            return
        try:
            self._answer(self._writer, self._request)
        except ValueError as error:
            self._writer.finish(GrpcStatus.INVALID_ARGUMENT, str(error))

    def on_cancel(self) -> None:
        """Nothing is held."""


class _Watch:
    """The status at once, and again whenever it changes."""

    def __init__(self, writer: StreamWriter, state: HealthState) -> None:
        self._writer = writer
        self._state = state
        self._service = ""
        self._sent: ServingStatus | None = None
        self._stop: Callable[[], None] | None = None

    def on_message(self, message: bytes) -> None:
        if self._stop is not None:
            self._end(GrpcStatus.INVALID_ARGUMENT, "more than one request message")
            return
        try:
            self._service = requested_service(message)
        except ValueError as error:
            self._end(GrpcStatus.INVALID_ARGUMENT, str(error))
            return
        self._stop = self._state.listen(self._send_status)
        self._send_status()

    def on_half_close(self) -> None:
        if self._stop is None:
            self._writer.finish(GrpcStatus.INVALID_ARGUMENT, "no request message")

    def on_cancel(self) -> None:
        if self._stop is not None:
            self._stop()

    def on_drain(self) -> None:
        """A watch has no end of its own, so it would hold a drain up; the client watches elsewhere."""
        self._end(GrpcStatus.UNAVAILABLE, "draining")

    def _send_status(self) -> None:
        status = self._state.status(self._service)
        if status is not self._sent:
            self._sent = status
            self._writer.send(encoded_status(status))

    def _end(self, status: GrpcStatus, message: str) -> None:
        self.on_cancel()
        self._writer.finish(status, message)


def encoded_status(status: ServingStatus) -> bytes:
    """HealthCheckResponse."""
    return bytes((_ENUM_FIELD_1, status)) if status else b""


def requested_service(request: bytes) -> str:
    """``service`` of a HealthCheckRequest; raises ValueError when the bytes are not one."""
    service = ""
    pos = 0
    while pos < len(request):
        tag, pos = _varint(request, pos)
        value, pos = _value(request, pos, tag & 7)
        if tag == _STRING_FIELD_1:
            try:
                service = value.decode()
            except UnicodeDecodeError as error:
                raise ValueError("service is not UTF-8") from error
    return service


def _value(data: bytes, pos: int, wire_type: int) -> tuple[bytes, int]:
    if wire_type == 0:
        _, end = _varint(data, pos)
    elif wire_type == 2:
        size, pos = _varint(data, pos)
        end = pos + size
    elif wire_type in (1, 5):
        end = pos + (8 if wire_type == 1 else 4)
    else:
        raise ValueError("the request is not a HealthCheckRequest")
    if end > len(data):
        raise ValueError("the request is cut short")
    return data[pos:end], end


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if pos >= len(data):
            raise ValueError("the request is cut short")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise ValueError("the request is not a HealthCheckRequest")


def _field(tag: int, value: bytes) -> bytes:
    """A length-delimited field; the ones here are shorter than 128 bytes."""
    return bytes((tag, len(value))) + value
