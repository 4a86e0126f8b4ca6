"""What a ProcessingRequest says according to the protobuf runtime, written down in plain values.

The independent half of every codec test: it shares no code with the codec.
"""

from __future__ import annotations

import math
from typing import Any

from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from dataplane.extproc.events import BodyEvent, Event, HeadersEvent, Modes

SUPPORTED_MODES = range(5)


def as_read_by_runtime(message: bytes) -> dict[str, Any] | None:
    """The event in this message; None when there is none. ``DecodeError`` when it is no message."""
    request = pb.ProcessingRequest.FromString(message)
    kind = request.WhichOneof("request")
    if kind is None:
        return None
    modes = None
    if request.HasField("protocol_config") and not kind.endswith("trailers"):
        config = request.protocol_config
        modes = [
            config.request_body_mode,
            config.response_body_mode,
            config.send_body_without_waiting_for_header_response,
        ]
        if not {config.request_body_mode, config.response_body_mode} <= set(SUPPORTED_MODES):
            return None
    metadata = None
    if request.HasField("metadata_context"):
        known = request.metadata_context.filter_metadata
        metadata = {name: _struct(known[name]) for name in sorted(known)}
    said: dict[str, Any] = {"kind": kind, "metadata": metadata}
    part = getattr(request, kind)
    if kind.endswith("headers"):
        said["headers"] = [
            [header.key, (header.raw_value or header.value.encode()).decode("latin-1")]
            for header in part.headers.headers
        ]
    if kind.endswith("body"):
        said["body"] = part.body.decode("latin-1")
    if not kind.endswith("trailers"):
        said["end_of_stream"] = part.end_of_stream
        said["modes"] = modes
    return said


def as_plain(event: Event, namespaces: list[str]) -> dict[str, Any]:
    """The same values out of an event; metadata is asked for by name, so the names have to be told."""
    name = type(event).__name__
    side = "request" if name.startswith("Request") else "response"
    said: dict[str, Any] = {"kind": f"{side}_{name.removeprefix(side.capitalize()).lower()}"}
    asked = None
    if event.metadata is not None:
        found = {name: _comparable(event.metadata.namespace(name)) for name in namespaces}
        asked = {name: values for name, values in found.items() if values is not None}
    said["metadata"] = asked
    if isinstance(event, HeadersEvent):
        said["headers"] = [[name, value.decode("latin-1")] for name, value in event.headers]
    if isinstance(event, BodyEvent):
        said["body"] = event.body.decode("latin-1")
    if isinstance(event, HeadersEvent | BodyEvent):
        said["end_of_stream"] = event.end_of_stream
        said["modes"] = _numbers(event.modes)
    return said


def _struct(struct: Any) -> dict[str, Any]:
    return {key: _value(struct.fields[key]) for key in struct.fields}


def _value(value: Any) -> Any:
    if value.HasField("struct_value"):
        return _struct(value.struct_value)
    if value.HasField("list_value"):
        return [_value(item) for item in value.list_value.values]
    for kind in ("string_value", "bool_value", "number_value"):
        if value.HasField(kind):
            return _comparable(getattr(value, kind))
    return None


def _comparable(value: Any) -> Any:
    """The same value; what JSON cannot say, or is not equal to itself, by its name."""
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(modes: Modes | None) -> list[Any] | None:
    return None if modes is None else [int(modes.request), int(modes.response), modes.body_without_waiting]
