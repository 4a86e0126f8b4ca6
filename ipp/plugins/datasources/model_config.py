"""``model-config-datasource``: the models of a file, which is followed while the processor runs.

What vanishes from the file is no longer chosen. A file with a mistake, or one that is gone, changes nothing:
the models that were read last stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

import msgspec

from dataplane.aside import aside
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError
from dataplane.files import FileSignature, read_regular_file
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from ipp.interfaces.handle import Handle
from ipp.interfaces.models import ModelList, ServedModel
from ipp.model_file import MAX_FILE_BYTES, read_models

log = logging.getLogger(__name__)

POLL_S: Final = 1.0


class ModelConfigDatasourceParams(PluginParams, frozen=True, kw_only=True):
    """One field, which is required."""

    models_path: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
    """The file, JSON or YAML: ``{"models": [{"name": ...}], "groups": [...]}``."""


class ModelConfigDatasource:
    """Replaced by rename and by a mounted ConfigMap's links, the file is seen as well."""

    info: ClassVar = PluginInfo("model-config-datasource", ModelConfigDatasourceParams)
    provides: ClassVar = (ModelList,)

    def __init__(self, name: TypedName, params: ModelConfigDatasourceParams, handle: Handle) -> None:
        self.name = name
        self._path = params.models_path
        self._models = handle.data.table(ModelList)
        self._seen = FileSignature()
        self._problems: Sequence[str] = ()
        self._watcher: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the file and follow it. ``ConfigErrors`` when it is not usable now."""
        found, problems = await aside(self._read)
        raise_any(problems)
        self._models.models = found
        self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="models-file")

    async def close(self) -> None:
        """Follow no longer."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    async def read_source(self) -> Sequence[str]:
        """Read the file now, and tell what is wrong with it."""
        found, problems = await aside(self._read)
        self._problems = [str(problem) for problem in problems]
        for problem in self._problems:
            log.error("plugin %s keeps the models it has: %s", self.name, problem)
        if not problems:
            self._models.models = found
            log.info("plugin %s lists %d models", self.name, len(found))
        return self._problems

    def dump_state(self) -> dict[str, Any]:
        """For the debug page."""
        models = self._models.models
        return {
            **listing("models", (model.name for model in models), len(models)),
            "problems": list(self._problems),
        }

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if await aside(lambda: FileSignature.of(self._path)) != self._seen:
                await self.read_source()

    def _read(self) -> tuple[tuple[ServedModel, ...], list[ConfigError]]:
        """Models and mistakes; blocks."""
        problems: list[ConfigError] = []
        self._seen = FileSignature.of(self._path)
        try:
            text = read_regular_file(self._path, MAX_FILE_BYTES, path=self._path)
        except ConfigError as error:
            return (), [error]
        found = read_models(text, problems)
        return found, [problem.within(self._path) for problem in problems]
