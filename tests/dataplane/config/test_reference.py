"""The reference page names every field of the format."""

import typing
from pathlib import Path

import msgspec

from dataplane.config.epp import EndpointPickerConfig

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/config.md"


def fields(kind: type[msgspec.Struct]) -> set[str]:
    """Names of all fields of a section and of the sections below it."""
    found: set[str] = set()
    for field, hint in zip(msgspec.structs.fields(kind), typing.get_type_hints(kind).values(), strict=True):
        found.add(field.encode_name)
        for part in (hint, *typing.get_args(hint)):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                found |= fields(part)
    return found


def test_every_field_is_on_the_page():
    page = PAGE.read_text()
    assert {name for name in fields(EndpointPickerConfig) if name not in page} == set()
