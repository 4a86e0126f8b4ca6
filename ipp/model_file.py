"""The file in which an operator lists models, with prices, groups and attributes.

The format is llm-d's. Every mistake is told and the file refused as a whole, so that a typing error never
takes a model away.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec

from dataplane.config.decode import decode_struct
from dataplane.config.document import read_document
from dataplane.config.values import ModelName
from dataplane.errors import ConfigError
from ipp.interfaces.models import MAX_MODELS, ServedModel

MAX_FILE_BYTES: Final = 4 << 20
MAX_ATTRIBUTES: Final = 100

Text = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class Pricing(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input_per_million: float = 0.0
    """Of prompts."""
    output_per_million: float = 0.0
    """Of answers."""


class ListedModel(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One entry of ``models``."""

    name: ModelName
    """As it stands in requests to its model servers."""
    pricing: Pricing = Pricing()
    """Absent = free."""
    metrics_url: str = msgspec.field(default="", name="metricsURL")
    """Where the pool that serves it tells its load."""
    attributes: Annotated[dict[Text, Text], msgspec.Meta(max_length=MAX_ATTRIBUTES)] = msgspec.field(
        default_factory=dict
    )
    """What by-field-filter may look at."""


class ListedGroup(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """One entry of ``groups``."""

    name: Text
    """Requests ask for ``auto/NAME``."""
    models: list[str]
    """Names of listed models."""


class ModelFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The whole file."""

    models: list[ListedModel]
    """In the order in which selectors see them; may be empty."""
    groups: list[ListedGroup] = msgspec.field(default_factory=list)
    """A model may be in several."""


def read_models(text: bytes, problems: list[ConfigError]) -> tuple[ServedModel, ...]:
    """The models of a file's text; mistakes go to ``problems``, each with its path."""
    found: list[ConfigError] = []
    raw = read_document(text, found)
    file = None if found else decode_struct(raw, ModelFile, "", found)
    if file is not None:
        sizes: list[tuple[str, Sequence[object]]] = [("models", file.models), ("groups", file.groups)]
        sizes += [(f"groups[{index}].models", group.models) for index, group in enumerate(file.groups)]
        found += [
            ConfigError(f"has {len(listed)} entries; at most {MAX_MODELS} are allowed", path=path)
            for path, listed in sizes
            if len(listed) > MAX_MODELS
        ]
    if file is None or found:
        problems.extend(found)
        return ()
    groups: dict[str, set[str]] = {model.name: set() for model in file.models}
    _check_models(file, problems)
    seen: set[str] = set()
    for index, group in enumerate(file.groups):
        if group.name in seen:
            problems.append(
                ConfigError(f"'{group.name}' is the name of another group", path=f"groups[{index}].name")
            )
        seen.add(group.name)
        for at, name in enumerate(group.models):
            if name in groups:
                groups[name].add(group.name)
            else:
                message = f"there is no model '{name[:100]}' in the list"
                problems.append(ConfigError(message, path=f"groups[{index}].models[{at}]"))
    return tuple(
        ServedModel(
            model.name,
            frozenset(groups[model.name]),
            model.pricing.input_per_million,
            model.pricing.output_per_million,
            model.metrics_url,
            model.attributes,
        )
        for model in file.models
    )


def _check_models(file: ModelFile, problems: list[ConfigError]) -> None:
    seen: set[str] = set()
    for index, model in enumerate(file.models):
        path = f"models[{index}]"
        if model.name in seen:
            problems.append(ConfigError(f"'{model.name}' is listed twice", path=f"{path}.name"))
        seen.add(model.name)
        for field in ("input_per_million", "output_per_million"):
            price = getattr(model.pricing, field)
            if not (math.isfinite(price) and price >= 0):
                message = f"must be a finite number of at least 0, is {price}"
                problems.append(ConfigError(message, path=f"{path}.pricing.{field}"))
        if model.metrics_url and not _is_http_url(model.metrics_url):
            message = "is no URL; write http://HOST:PORT/metrics"
            problems.append(ConfigError(message, path=f"{path}.metricsURL"))


def _is_http_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
