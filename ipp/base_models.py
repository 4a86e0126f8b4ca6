"""From the model a request names to the base model whose pool serves it.

Exact names come first (base models, their adapters, their aliases), then patterns that end in ``*``, the
longest first. Names are unique over all mappings: one that two base models claim is a mistake, and which of
them would win is not left to the order of documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from dataplane.config.values import ModelName, ModelPattern
from dataplane.errors import ConfigError

MAX_MAPPINGS: Final = 10_000
MAX_NAMES: Final = 100_000
"""Over all mappings."""


class BaseModelMapping(
    msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True, kw_only=True, omit_defaults=True
):
    """One base model and what else it is asked for by."""

    base_model: ModelName
    """The name by which routes find its pool."""
    adapters: list[ModelName] = []
    """LoRA adapters that its model servers hold."""
    aliases: list[ModelName] = []
    """Other names of the base model itself."""
    patterns: Annotated[list[ModelPattern], msgspec.Meta(max_length=1000)] = []
    """Beginnings of names, with a ``*`` behind them."""


class BaseModels:
    """Looks base models up. Immutable."""

    def __init__(self, exact: Mapping[str, str], patterns: Mapping[str, str]) -> None:
        self._exact = exact
        self._patterns = patterns
        self._lengths = sorted({len(pattern) for pattern in patterns}, reverse=True)

    def __len__(self) -> int:
        return len(self._exact) + len(self._patterns)

    def find(self, model: str) -> str:
        """The base model of a model; empty when nobody has it."""
        found = self._exact.get(model)
        if found is not None:
            return found
        for length in self._lengths:
            if length <= len(model):
                found = self._patterns.get(model[:length])
                if found is not None:
                    return found
        return ""


NONE: Final = BaseModels({}, {})


def base_models(mappings: Iterable[tuple[str, BaseModelMapping]], problems: list[ConfigError]) -> BaseModels:
    """The table of mappings, each with the path by which a mistake in it is told."""
    exact: dict[str, str] = {}
    patterns: dict[str, str] = {}
    origin: dict[str, str] = {}
    count = 0
    for path, mapping in mappings:
        base = mapping.base_model.strip()
        named = [("baseModel", base)]
        named += [(f"adapters[{i}]", name.strip()) for i, name in enumerate(mapping.adapters)]
        named += [(f"aliases[{i}]", name.strip()) for i, name in enumerate(mapping.aliases)]
        named += [(f"patterns[{i}]", name.strip()) for i, name in enumerate(mapping.patterns)]
        for field, name in named:
            if not name:
                continue
            count += 1
            if count > MAX_NAMES:
                problems.append(ConfigError(f"there are more than {MAX_NAMES} names", path=path))
                return NONE
            if name in origin and not (field == "baseModel" and exact.get(name) == base):
                problems.append(
                    ConfigError(
                        f"'{name}' is also in {origin[name]}; a name has one base model",
                        path=f"{path}.{field}",
                    )
                )
                continue
            origin.setdefault(name, f"{path}.{field}")
            if name.endswith("*"):
                patterns[name[:-1]] = base
            else:
                exact[name] = base
    return BaseModels(exact, patterns)
