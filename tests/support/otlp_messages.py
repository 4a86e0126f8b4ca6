"""OTLP's trace messages, of protobuf's own making: what a collector reads with."""

from __future__ import annotations

from typing import Any

from tests.support.vllm_messages import BLOB, BOOL, MANY, STRING, UINT32, Field, messages_of

INT64, DOUBLE, FIXED64, FIXED32 = Field.TYPE_INT64, Field.TYPE_DOUBLE, Field.TYPE_FIXED64, Field.TYPE_FIXED32

SCHEMA: dict[str, list[tuple[Any, ...]]] = {
    "ArrayValue": [("values", 1, "AnyValue", MANY)],
    "AnyValue": [
        ("string_value", 1, STRING),
        ("bool_value", 2, BOOL),
        ("int_value", 3, INT64),
        ("double_value", 4, DOUBLE),
        ("array_value", 5, "ArrayValue"),
        ("bytes_value", 7, BLOB),
    ],
    "KeyValue": [("key", 1, STRING), ("value", 2, "AnyValue")],
    "InstrumentationScope": [("name", 1, STRING), ("version", 2, STRING)],
    "Resource": [("attributes", 1, "KeyValue", MANY)],
    "Event": [("time_unix_nano", 1, FIXED64), ("name", 2, STRING), ("attributes", 3, "KeyValue", MANY)],
    "Link": [("trace_id", 1, BLOB), ("span_id", 2, BLOB), ("attributes", 4, "KeyValue", MANY)],
    "Status": [("message", 2, STRING), ("code", 3, UINT32)],
    "Span": [
        ("trace_id", 1, BLOB),
        ("span_id", 2, BLOB),
        ("trace_state", 3, STRING),
        ("parent_span_id", 4, BLOB),
        ("name", 5, STRING),
        ("kind", 6, UINT32),
        ("start_time_unix_nano", 7, FIXED64),
        ("end_time_unix_nano", 8, FIXED64),
        ("attributes", 9, "KeyValue", MANY),
        ("dropped_attributes_count", 10, UINT32),
        ("events", 11, "Event", MANY),
        ("links", 13, "Link", MANY),
        ("status", 15, "Status"),
        ("flags", 16, FIXED32),
    ],
    "ScopeSpans": [("scope", 1, "InstrumentationScope"), ("spans", 2, "Span", MANY)],
    "ResourceSpans": [("resource", 1, "Resource"), ("scope_spans", 2, "ScopeSpans", MANY)],
    "ExportTraceServiceRequest": [("resource_spans", 1, "ResourceSpans", MANY)],
}

ExportTraceServiceRequest: Any = messages_of(SCHEMA)["ExportTraceServiceRequest"]
