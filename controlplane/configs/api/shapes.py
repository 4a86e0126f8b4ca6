"""The shapes of the configuration's API, for its description."""

from __future__ import annotations

from typing import Any, Final

import msgspec

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_MOMENT: Final[Schema] = {"type": "string", "format": "date-time"}
_NUMBER: Final[Schema] = {"type": "integer"}
_MAYBE: Final[Schema] = {"type": ["integer", "null"]}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _list(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def body(kind: type[msgspec.Struct]) -> Schema:
    """A struct's shape with the shapes it refers to in place."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    found = _inlined(schema, parts)
    assert isinstance(found, dict)  # noqa: S101 - the shape of a struct is an object
    return found


def _inlined(schema: Any, parts: dict[str, Any]) -> Any:
    if isinstance(schema, dict):
        if "$ref" in schema:
            return _inlined(parts[schema["$ref"]], parts)
        return {key: _inlined(item, parts) for key, item in schema.items()}
    return [_inlined(item, parts) for item in schema] if isinstance(schema, list) else schema


CHANGES: Final = _list(_object(path=_TEXT, before={}, after={}))
REVISION: Final = _object(
    number=_NUMBER, digest=_TEXT, author=_TEXT, comment=_TEXT, parent=_MAYBE, createdAt=_MOMENT
)
WHOLE_REVISION: Final = {
    **REVISION,
    "required": [*REVISION["required"], "content"],
    "properties": {**REVISION["properties"], "content": {"type": "object"}},
}
DIFF: Final[Schema] = {
    "type": "object",
    "required": ["document", "from", "to", "changes"],
    "properties": {"document": _TEXT, "from": _NUMBER, "to": _NUMBER, "changes": CHANGES},
}
_MATCHED: Final = _object(patterns=_list(_TEXT), known=_list(_TEXT), more=_NUMBER)
_AFFECTS: Final = {
    **_object(tenants=_MATCHED, models=_MATCHED, pools=_MATCHED),
    "type": ["object", "null"],
    "description": "of a guardrail policy: whose traffic it is for",
}
PLAN: Final = _object(
    kind=_TEXT,
    document=_TEXT,
    revision=_NUMBER,
    active=_MAYBE,
    changes=CHANGES,
    warnings=_list(_TEXT),
    pools=_list(_TEXT),
    affects=_AFFECTS,
    workers=_list(_object(worker=_TEXT, pool=_TEXT, applied=_MAYBE, first={"type": "boolean"})),
)
VERDICT: Final = _object(digest=_TEXT, warnings=_list(_TEXT), revision=_MAYBE, changes=CHANGES)
ROLLOUT: Final = _object(
    id=_NUMBER,
    revision=_NUMBER,
    stage={
        "type": "string",
        "enum": ["pending", "canary", "rolling", "complete", "halted", "rolled_back"],
    },
    reason=_TEXT,
    canary={"type": ["string", "null"]},
    guard={"type": ["object", "null"]},
    author=_TEXT,
    comment=_TEXT,
    createdAt=_MOMENT,
    endedAt={"type": ["string", "null"], "format": "date-time"},
)
_WORKER: Final = _object(
    worker=_TEXT,
    pool=_TEXT,
    present={"type": "boolean"},
    seenAt=_MOMENT,
    applied=_MAYBE,
    outcome={"type": "string", "enum": ["waiting", "sent", "applied", "rejected"]},
    problems=_list(_object(path=_TEXT, message=_TEXT)),
    requests=_NUMBER,
    errors=_NUMBER,
    blocked=_NUMBER,
)
WHOLE_ROLLOUT: Final = {
    **ROLLOUT,
    "properties": {
        **ROLLOUT["properties"],
        "active": _MAYBE,
        "workersPresent": _NUMBER,
        "workersApplied": _NUMBER,
        "workers": _list(_WORKER),
    },
}
