"""Processors that select models: their configuration, and the file in which the models are listed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from dataplane.extproc.events import Proceed
from tests.support.processors import Rig

THREE = [
    {"name": "small", "pricing": {"input_per_million": 0.5, "output_per_million": 0.5}},
    {
        "name": "medium",
        "pricing": {"input_per_million": 1, "output_per_million": 2},
        "attributes": {"tier": "gold"},
    },
    {"name": "large", "pricing": {"input_per_million": 2, "output_per_million": 4}},
]
GROUPS = [{"name": "fast", "models": ["small", "medium"]}, {"name": "wise", "models": ["large"]}]


def write_models(path: Path, models: Sequence[Any] = THREE, groups: Sequence[Any] = GROUPS) -> Path:
    """The file, written anew."""
    path.write_text(json.dumps({"models": models, "groups": groups}))
    return path


def selecting(
    path: Path,
    *helpers: str | dict[str, Any],
    weights: dict[str, float] | None = None,
    response: Sequence[str] = (),
    **layer: Sequence[str | dict[str, Any]],
) -> dict[str, Any]:
    """A configuration with a selector, these helpers beside it and these plugins in the data layer."""
    source = {"type": "model-config-datasource", "parameters": {"modelsPath": str(path)}}
    plugins: dict[str, dict[str, Any]] = {}
    for each in ("model-selector", *helpers, source, *chain.from_iterable(layer.values())):
        spec = {"type": each} if isinstance(each, str) else each
        plugins[_name(each)] = spec
    weights = weights or {}
    request: list[dict[str, Any]] = [{"pluginRef": "model-selector"}]
    for each in helpers:
        name = _name(each)
        request.append({"pluginRef": name} | ({"weight": weights[name]} if name in weights else {}))
    return {
        "plugins": list(plugins.values()),
        "profiles": [
            {
                "name": "default",
                "plugins": {"request": request, "response": [{"pluginRef": name} for name in response]},
            }
        ],
        "datalayer": {"datasources": [{"pluginRef": "model-config-datasource"}]}
        | {section: [{"pluginRef": _name(each)} for each in found] for section, found in layer.items()},
    }


def _name(plugin: str | dict[str, Any]) -> str:
    return plugin if isinstance(plugin, str) else str(plugin.get("name") or plugin["type"])


@asynccontextmanager
async def running(config: dict[str, Any]) -> AsyncIterator[Rig]:
    """A processor whose plugins have begun, and end."""
    rig = Rig(config)
    await rig.pipeline.start()
    try:
        yield rig
    finally:
        await rig.pipeline.close()


def model_of(answer: Proceed) -> str:
    """The model that a changed body names; empty when nothing is changed."""
    return "" if answer.body is None else str(json.loads(answer.body)["model"])
