"""The API's description: shapes of documents come from the structs that judge them, so they cannot differ."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from drf_spectacular.utils import OpenApiResponse

from controlplane.core.kinds import KINDS, Service
from controlplane.core.resources import ENVELOPE

Schema = dict[str, Any]

REFERENCE: Final = "#/components/schemas/{name}"
ERROR: Final = "Error"

DETAILS: Final[Schema] = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["path", "message"],
        "properties": {"path": {"type": "string"}, "message": {"type": "string"}},
    },
}

_ERROR: Final[Schema] = {
    "type": "object",
    "required": ["code", "message", "details"],
    "properties": {
        "code": {"type": "string"},
        "message": {"type": "string"},
        "details": DETAILS,
        "expected": {"type": "integer", "description": "412: the version the change was meant for"},
        "found": {"type": "integer", "description": "412: the version there is"},
        "current": {"type": "object", "description": "412: the object as it is"},
    },
}


def reference(service: Service) -> Schema:
    """The shape of a kind's documents."""
    return {"$ref": REFERENCE.format(name=service.kind)}


def page_of(service: Service) -> Schema:
    """One page of a kind's documents."""
    return page(reference(service))


def page(item: Schema) -> Schema:
    """One page of anything."""
    number = {"type": "integer", "minimum": 0}
    return {
        "type": "object",
        "required": ["items", "total", "limit", "offset"],
        "properties": {
            "items": {"type": "array", "items": item},
            "total": number,
            "limit": number,
            "offset": number,
        },
    }


def body(schema: Schema) -> dict[str, Any]:
    """A request body, as JSON or YAML."""
    return {"application/json": schema, "application/yaml": schema}


def answers(good: dict[int, Schema | None], *refusals: int) -> dict[int, Any]:
    """Responses of an operation; what every operation can answer is added."""
    found: dict[int, Any] = {
        status: OpenApiResponse(schema, description="done") for status, schema in good.items()
    }
    error = OpenApiResponse({"$ref": REFERENCE.format(name=ERROR)}, description="refused")
    return found | dict.fromkeys(sorted({400, 401, 403, 413, *refusals}), error)


def add_components(result: Any, generator: Any, request: Any, public: Any) -> Any:
    """Hook of drf-spectacular: puts the shapes that operations refer to into the description."""
    schemas: Schema = result.setdefault("components", {}).setdefault("schemas", {})
    schemas[ERROR] = _ERROR
    for service in KINDS.all():
        if not service.flat:
            _, parts = msgspec.json.schema_components([service.spec_type], ref_template=REFERENCE)
            schemas.update(parts)
        schemas[service.kind] = _document(service)
    return result


def _document(service: Service) -> Schema:
    return {
        "type": "object",
        "required": ["apiVersion", "kind", "metadata", *([] if service.flat else ["spec"])],
        "additionalProperties": False,
        "properties": {
            "apiVersion": {"type": "string", "enum": list(service.versions)},
            "kind": {"type": "string", "const": service.kind},
            "metadata": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"},
                    "labels": {
                        "type": "object",
                        "additionalProperties": {"type": "string", "maxLength": 256},
                    },
                    "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
                    "resourceVersion": {"type": "string", "pattern": "^[0-9]{1,18}$"},
                },
            },
            **_said(service),
            "status": {"type": "object", "description": "ignored"},
        },
    }


def _said(service: Service) -> dict[str, Schema]:
    """What a document says besides its envelope; the sections of a flat one are told by their names alone."""
    if not service.flat:
        return {"spec": {"$ref": REFERENCE.format(name=service.spec_type.__name__)}}
    names = {field.encode_name for field in msgspec.structs.fields(service.spec_type)}
    return {name: {} for name in sorted(names - ENVELOPE)}
