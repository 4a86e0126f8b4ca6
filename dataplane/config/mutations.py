"""What documents may change in requests to a provider: headers, and top-level fields of the body.

Removals come before settings. The body is changed after translation, so its fields are the provider's own.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from dataplane.errors import ConfigError

MAX_MUTATIONS: Final = 16
CREDENTIAL_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "api-key", "x-api-key", "x-goog-api-key", "x-amz-security-token"}
)
FRAMING_HEADERS: Final = frozenset(
    {"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
OWN_HEADERS: Final = ("x-ai-eg-", "x-envoy-original-path")
"""Beginnings of headers that carry routing from one part of the gateway to another."""

HeaderName = Annotated[
    str, msgspec.Meta(max_length=128, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$(?!\n)", min_length=1)
]
HeaderValue = Annotated[str, msgspec.Meta(max_length=4096, pattern=r"^[ -~]*$(?!\n)")]
FieldName = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_-]+$(?!\n)")]


class _Section(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True
):
    """A part of a document."""


class SetHeader(_Section, frozen=True, kw_only=True):
    """A header with this value, whether there was one or not."""

    name: HeaderName
    value: HeaderValue

    def __post_init__(self) -> None:
        if self.name.lower() in CREDENTIAL_HEADERS:
            raise ConfigError("would show a secret to everybody; use a ProviderCredential", path="name")


class HeaderMutation(_Section, frozen=True, kw_only=True):
    """Headers to set and to remove; names in any case."""

    set: list[SetHeader] | None = None
    remove: list[HeaderName] | None = None

    def __post_init__(self) -> None:
        named = [("set", header.name) for header in self.set or ()]
        named += [("remove", name) for name in self.remove or ()]
        _check_count(self.set, self.remove)
        seen: dict[tuple[str, str], None] = {}
        for where, name in named:
            low = name.lower()
            if low in FRAMING_HEADERS or low.startswith(OWN_HEADERS):
                raise ConfigError(f"{name} is the gateway's own business", path=where)
            if (where, low) in seen:
                raise ConfigError(f"names {name} twice", path=where)
            seen[where, low] = None


class SetField(_Section, frozen=True, kw_only=True):
    """A field of the body with this value."""

    path: FieldName
    """Of the top level."""
    value: Annotated[str, msgspec.Meta(min_length=1, max_length=16_384)]
    """JSON; what is none is taken as text."""


class BodyMutation(_Section, frozen=True, kw_only=True):
    """Fields to set and to remove."""

    set: list[SetField] | None = None
    remove: list[FieldName] | None = None

    def __post_init__(self) -> None:
        _check_count(self.set, self.remove)
        paths = [field.path for field in self.set or ()]
        for where, names in (("set", paths), ("remove", self.remove or [])):
            if len(dict.fromkeys(names)) < len(names):
                raise ConfigError("names a field twice", path=where)
            if "model" in names:
                raise ConfigError("must leave the model alone; use modelNameOverride", path=where)


def _check_count(*lists: list[SetHeader] | list[SetField] | list[str] | None) -> None:
    for where, found in zip(("set", "remove"), lists, strict=True):
        if found is not None and len(found) > MAX_MUTATIONS:
            raise ConfigError(f"has {len(found)} entries; give at most {MAX_MUTATIONS}", path=where)
