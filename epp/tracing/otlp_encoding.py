"""Finished spans as an OTLP ``ExportTraceServiceRequest``, written field by field.

Two of the packages a gateway needs bring generated modules of these messages under one name and overwrite
one another's files, and the older of the two does not know instrumentation scopes. The messages are few and
settled, so they are written here by number; the source of the numbers is opentelemetry-proto 1.x,
``trace/v1/trace.proto`` and what it imports.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from dataplane.extproc.wire import encode_varint as varint

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_HAS_IS_REMOTE: Final = 0x100
_IS_REMOTE: Final = 0x200

_INT64: Final = (1 << 64) - 1


def encode_spans(spans: Sequence[ReadableSpan]) -> bytes:
    """The request that exports these spans, grouped by resource and scope."""
    resources: dict[int, tuple[Any, dict[int, tuple[Any, list[bytes]]]]] = {}
    for span in spans:
        _, scopes = resources.setdefault(id(span.resource), (span.resource, {}))
        scope = span.instrumentation_scope
        scopes.setdefault(id(scope), (scope, []))[1].append(_span(span))
    return b"".join(
        _message(1, _resource(resource) + b"".join(_scope(*group) for group in scopes.values()))
        for resource, scopes in resources.values()
    )


def _resource(resource: Any) -> bytes:
    schema = resource.schema_url
    return _message(1, _attributes(1, resource.attributes)) + (_text(3, schema) if schema else b"")


def _scope(scope: Any, spans: Iterable[bytes]) -> bytes:
    named = b""
    if scope is not None:
        named = _text(1, scope.name) + _text(2, scope.version or "")
    return _message(2, _message(1, named) + b"".join(_message(2, span) for span in spans))


def _span(span: ReadableSpan) -> bytes:
    context, parent = span.get_span_context(), span.parent
    if context is None:
        raise ValueError(f"span {span.name} has no context")
    return b"".join(
        (
            _message(1, context.trace_id.to_bytes(16, "big")),
            _message(2, context.span_id.to_bytes(8, "big")),
            _text(3, context.trace_state.to_header()),
            b"" if parent is None else _message(4, parent.span_id.to_bytes(8, "big")),
            _text(5, span.name),
            _number(6, span.kind.value + 1),
            _fixed64(7, span.start_time or 0),
            _fixed64(8, span.end_time or 0),
            _attributes(9, span.attributes or {}),
            _number(10, span.dropped_attributes),
            *(_message(11, _event(event)) for event in span.events),
            *(_message(13, _link(link)) for link in span.links),
            _message(15, _text(2, span.status.description or "") + _number(3, span.status.status_code.value)),
            _tag(16, _FIXED32) + struct.pack("<I", _flags(context, parent)),
        )
    )


def _flags(context: SpanContext, parent: SpanContext | None) -> int:
    is_remote = parent is not None and parent.is_remote
    return int(context.trace_flags) | _HAS_IS_REMOTE | (_IS_REMOTE if is_remote else 0)


def _event(event: Any) -> bytes:
    return _fixed64(1, event.timestamp) + _text(2, event.name) + _attributes(3, event.attributes or {})


def _link(link: Any) -> bytes:
    context = link.context
    return b"".join(
        (
            _message(1, context.trace_id.to_bytes(16, "big")),
            _message(2, context.span_id.to_bytes(8, "big")),
            _text(3, context.trace_state.to_header()),
            _attributes(4, link.attributes or {}),
        )
    )


def _attributes(field: int, attributes: Mapping[str, Any]) -> bytes:
    return b"".join(
        _message(field, _text(1, name) + _message(2, _value(value))) for name, value in attributes.items()
    )


def _value(value: Any) -> bytes:
    """An ``AnyValue``; it is a oneof, so a value that is zero is written, too."""
    if isinstance(value, str):
        return _message(1, value.encode("utf-8", "replace"))
    if isinstance(value, bool):
        return _tag(2, _VARINT) + varint(int(value))
    if isinstance(value, int):
        return _tag(3, _VARINT) + varint(value & _INT64)
    if isinstance(value, float):
        return _tag(4, _FIXED64) + struct.pack("<d", value)
    if isinstance(value, bytes):
        return _message(7, value)
    if isinstance(value, Sequence):
        return _message(5, b"".join(_message(1, _value(item)) for item in value))
    return _message(1, str(value).encode("utf-8", "replace"))


def _tag(field: int, kind: int) -> bytes:
    return varint(field << 3 | kind)


def _message(field: int, content: bytes) -> bytes:
    return _tag(field, _BYTES) + varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode("utf-8", "replace")) if text else b""


def _number(field: int, number: int) -> bytes:
    return _tag(field, _VARINT) + varint(number) if number else b""


def _fixed64(field: int, number: int) -> bytes:
    return _tag(field, _FIXED64) + struct.pack("<Q", number)
