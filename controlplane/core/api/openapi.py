"""The API's description: shapes of documents come from the structs that judge them, so they cannot differ."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse

from controlplane.core.kinds import KINDS, Service
from controlplane.core.metadata import FIELDS, MAX_LABEL_CHARACTERS, MAX_LABELS
from controlplane.core.resources import ENVELOPE
from dataplane.config.schema import Definitions

Schema = dict[str, Any]

NAME: Final = "[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?"
VERSION: Final = '(W/)?("[0-9]{1,18}"|[0-9]{1,18})'
"""An ETag of an object, with its quotes or without."""
IF_MATCH: Final = OpenApiParameter(
    "If-Match",
    {"type": "string", "pattern": f"^{VERSION}$"},
    OpenApiParameter.HEADER,
    description="the object's ETag; or its document says its resourceVersion, where there is one",
)
REFERENCE: Final = "#/components/schemas/{name}"
ERROR: Final = "Error"
ANY_DOCUMENT: Final = {"$ref": REFERENCE.format(name="Document")}
"""The shape of a document of whichever kind."""

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

_OTHERS: Final[Schema] = {"description": "as Kubernetes writes it; ignored"}


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
    """A request body, as JSON or YAML. A field that may be left out may be null, which is the same."""
    said = _with_nulls(schema)
    return {"application/json": said, "application/yaml": said}


def _with_nulls(schema: Schema) -> Schema:
    """The shape of an object whose optional members may be null as well, at every depth."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    required = schema.get("required", ())
    found = {name: _with_nulls(each) for name, each in properties.items()}
    return schema | {
        "properties": {
            name: each if name in required else {"anyOf": [each, {"type": "null"}]}
            for name, each in found.items()
        }
    }


def answers(good: dict[Any, Schema | None], *refusals: int) -> dict[Any, Any]:
    """Responses of an operation, by status or by status and content type; what all can answer is added."""
    found: dict[Any, Any] = {
        status: OpenApiResponse(schema, description="done") for status, schema in good.items()
    }
    error = OpenApiResponse({"$ref": REFERENCE.format(name=ERROR)}, description="refused")
    return found | dict.fromkeys(sorted({400, 401, 403, 413, *refusals}), error)


def add_components(result: Any, generator: Any, request: Any, public: Any) -> Any:
    """Hook of drf-spectacular: puts the shapes that operations refer to into the description."""
    schemas: Schema = result.setdefault("components", {}).setdefault("schemas", {})
    schemas[ERROR] = _ERROR
    specs = Definitions(REFERENCE.format(name=""))
    for service in KINDS.all():
        if not service.flat:
            specs.name_of(service.spec_type)
        schemas[service.kind] = _document(service, specs)
    schemas.update(specs)
    schemas["Document"] = {
        "oneOf": [reference(service) for service in KINDS.all()],
        "discriminator": {"propertyName": "kind"},
    }
    return result


def _document(service: Service, specs: Definitions) -> Schema:
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
                "additionalProperties": False,
                "properties": {
                    **dict.fromkeys(FIELDS, _OTHERS),
                    "namespace": {"type": ["string", "null"], "pattern": f"^{NAME}$"},
                    "name": {"type": "string", "pattern": f"^{NAME}$"},
                    "labels": {
                        "type": ["object", "null"],
                        "maxProperties": MAX_LABELS,
                        "propertyNames": {"maxLength": MAX_LABEL_CHARACTERS},
                        "additionalProperties": {"type": "string", "maxLength": MAX_LABEL_CHARACTERS},
                    },
                    "annotations": {
                        "type": ["object", "null"],
                        "properties": {key: {"type": "string"} for key in service.annotations},
                        "additionalProperties": {"type": "string"},
                    },
                    "resourceVersion": {"type": ["string", "null"], "pattern": "^[0-9]+$"},
                },
            },
            **_said(service, specs),
            "status": {"type": ["object", "null"], "description": "what is so; ignored in what is sent"},
        },
    }


def _said(service: Service, specs: Definitions) -> dict[str, Schema]:
    """What a document says besides its envelope; the sections of a flat one are told by their names alone."""
    if not service.flat:
        return {"spec": {"$ref": specs.place + specs.name_of(service.spec_type)}}
    names = {field.encode_name for field in msgspec.structs.fields(service.spec_type)}
    return {name: {} for name in sorted(names.difference(ENVELOPE))}
