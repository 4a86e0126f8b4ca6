"""JSON Schema of structs: types, bounds, defaults and the texts below the fields."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest

from dataplane.config.decode import Duration, Quantity, decode_struct
from dataplane.config.docstrings import class_doc, field_docs
from dataplane.config.resilience import EjectionSpec
from dataplane.config.schema import Definitions, Schema, struct_schema, type_schema


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """A part."""

    port_number: Annotated[int, msgspec.Meta(ge=1, le=65535)]
    """Where it
    listens."""
    parts: list[Inner] = []
    """Parts of the part."""


class Outer(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """The ``whole``."""

    name: Annotated[str, msgspec.Meta(min_length=1)] = "x"
    """Its name."""
    old_name: str = ""
    """Deprecated: ``name``."""
    inner: Inner | None = None
    """One part."""
    parts: Annotated[list[Inner], msgspec.Meta(max_length=2)] = []
    ratio: float | None = None
    ttl: Duration = Duration(60.0)
    size: Quantity | None = None
    colour: Colour = Colour.RED
    mode: Literal["a", "b"] = "a"
    labels: dict[str, str] = {}
    free: dict[str, Any] | None = None
    pair: tuple[str, ...] = ()


class Heir(Outer, frozen=True):
    more: bool = False
    """What is added."""


def outer() -> tuple[Schema, Definitions]:
    definitions = Definitions()
    return struct_schema(Outer, definitions), definitions


def test_a_struct_becomes_a_closed_object():
    schema, definitions = outer()
    assert schema["type"] == ["object", "null"]
    assert schema["additionalProperties"] is False
    assert schema["description"] == "The `whole`."
    assert "required" not in schema
    assert definitions["Inner"] == {
        "type": "object",
        "properties": {
            "portNumber": {
                "type": "integer",
                "minimum": 1,
                "maximum": 65535,
                "description": "Where it listens.",
            },
            "parts": {
                "type": ["array", "null"],
                "items": {"$ref": "#/definitions/Inner"},
                "description": "Parts of the part.",
            },
        },
        "additionalProperties": False,
        "description": "A part.",
        "required": ["portNumber"],
    }


def test_every_kind_of_field_has_its_schema():
    properties = outer()[0]["properties"]
    assert properties["name"] == {
        "type": ["string", "null"],
        "minLength": 1,
        "description": "Its name.",
        "default": "x",
    }
    assert properties["oldName"]["deprecated"] is True
    assert properties["inner"] == {
        "anyOf": [{"$ref": "#/definitions/Inner"}, {"type": "null"}],
        "description": "One part.",
    }
    assert properties["parts"]["maxItems"] == 2
    assert properties["ratio"] == {"type": ["number", "null"]}
    assert properties["colour"] == {"enum": ["red", "blue", None], "default": "red"}
    assert properties["mode"] == {"enum": ["a", "b", None], "default": "a"}
    assert properties["labels"] == {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
    assert properties["free"] == {"type": ["object", "null"]}
    assert properties["pair"] == {"type": ["array", "null"], "items": {"type": "string"}}


def test_a_type_without_notation_is_refused():
    with pytest.raises(TypeError, match="has no JSON schema"):
        type_schema(bytes, Definitions())


def test_structs_of_one_name_are_told_apart():
    definitions = Definitions()
    other = msgspec.defstruct("Inner", [("x", int, 0)], module="elsewhere")
    assert type_schema(Inner, definitions) == {"$ref": "#/definitions/Inner"}
    assert type_schema(other, definitions) == {"$ref": "#/definitions/elsewhere.Inner"}
    assert type_schema(Inner, definitions) == {"$ref": "#/definitions/Inner"}
    assert list(definitions["elsewhere.Inner"]["properties"]) == ["x"]


def test_texts_are_read_from_the_source_and_inherited():
    assert field_docs(Heir)["more"] == "What is added."
    assert field_docs(Heir)["old_name"] == "Deprecated: `name`."
    assert class_doc(Outer) == "The `whole`."
    assert class_doc(Heir) == ""
    assert field_docs(msgspec.defstruct("Made", ["x"])) == {}


@pytest.mark.parametrize(
    ("document", "accepted"),
    [
        ({}, True),
        (None, True),
        ({"ttl": "1m30s", "size": "16Mi", "inner": None}, True),
        ({"ttl": "0", "size": 5}, True),
        ({"ttl": "-1.5h"}, True),
        ({"size": "500M", "inner": {"portNumber": 80, "parts": [{"portNumber": 1}]}}, True),
        ({"ttl": 5}, False),
        ({"ttl": "5"}, False),
        ({"ttl": "1 s"}, False),
        ({"size": "-1"}, False),
        ({"size": -1}, False),
        ({"size": "1X"}, False),
        ({"inner": {}}, False),
        ({"inner": {"portNumber": 0}}, False),
        ({"inner": {"portNumber": 80, "parts": [{"portNumber": "80"}]}}, False),
        ({"name": ""}, False),
        ({"name": None, "parts": None, "labels": None, "ttl": None, "colour": None, "mode": None}, True),
        ({"inner": {"portNumber": None}}, False),
        ({"inner": {"portNumber": 1, "parts": None}}, True),
        ({"nmae": "x"}, False),
        ({"colour": "green"}, False),
        ({"labels": {"a": 1}}, False),
        ({"ratio": "1"}, False),
        ([], False),
    ],
    ids=repr,
)
def test_schema_and_decoder_agree(document: Any, accepted: bool):
    schema, definitions = outer()
    validator = jsonschema.Draft7Validator({**schema, "definitions": definitions})
    problems: list[Any] = []
    decode_struct(document, Outer, "", problems)
    assert (validator.is_valid(document), not problems) == (accepted, accepted)


def test_the_default_of_a_duration_is_one_that_a_document_may_have():
    properties = struct_schema(EjectionSpec, {})["properties"]
    assert properties["baseTime"]["default"] == "5s"
    assert properties["factor"]["default"] == 2.0
