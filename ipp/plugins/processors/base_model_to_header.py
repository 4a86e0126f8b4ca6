"""``base-model-to-header``: names the base model of a request's model, by which routes find a pool.

The mapping comes from parameters and from a file or folder: ConfigMaps as llm-d labels them, or plain
documents. Files are followed; what is removed from them is removed here, and a mistake keeps what was there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Final

import msgspec

from dataplane.aside import aside
from dataplane.config.problems import raise_any
from dataplane.errors import ConfigError
from dataplane.plugin.base import PluginInfo, PluginParams, Stability, TypedName
from ipp.base_model_files import MappingFiles
from ipp.base_models import MAX_MAPPINGS, NONE, BaseModelMapping, BaseModels, base_models
from ipp.interfaces.handle import Handle
from ipp.interfaces.message import RequestMessage
from ipp.plugins.header_names import HeaderName, check_header_name, header_value

log = logging.getLogger(__name__)

POLL_S: Final = 1.0


class BaseModelToHeaderParams(PluginParams, frozen=True, kw_only=True):
    """Without mappings every model is unknown."""

    header_name: HeaderName = "X-Gateway-Base-Model-Name"
    """A client's own header of this name is taken away."""
    mappings: Annotated[list[BaseModelMapping], msgspec.Meta(max_length=MAX_MAPPINGS)] = msgspec.field(
        default_factory=list
    )
    """Base models with their adapters, aliases and patterns."""
    path: str = ""
    """A file or folder with more of them, followed while the processor runs."""

    def __post_init__(self) -> None:
        check_header_name(self.header_name)


class BaseModelToHeader:
    """A request without a model gets no header, one for an unknown model an empty one."""

    info: ClassVar = PluginInfo("base-model-to-header", BaseModelToHeaderParams, Stability.STABLE)
    needs_request_body: ClassVar[bool] = True
    names_models: ClassVar[bool] = True

    def __init__(self, name: TypedName, params: BaseModelToHeaderParams, handle: Handle) -> None:
        """``ConfigError`` when two base models claim one name."""
        self.name = name
        self._header = params.header_name.lower()
        self._inline = [(f"mappings[{i}]", mapping) for i, mapping in enumerate(params.mappings)]
        problems: list[ConfigError] = []
        self._models = base_models(self._inline, problems)
        raise_any(problems)
        self._files = MappingFiles(params.path) if params.path else None
        self._not_found = handle.metrics.field_not_found.child("model")
        self._problems: list[str] = []
        self._watcher: asyncio.Task[None] | None = None

    def owned_headers(self) -> Collection[str]:
        """Its header, which says where the request goes."""
        return (self._header,)

    def process_request(self, request: RequestMessage) -> None:
        """Set the header."""
        if "model" not in request.members:
            self._not_found.inc()
            return
        request.base_model = self._models.find(request.model.strip())
        request.set_header(self._header, header_value(request.base_model))

    async def start(self) -> None:
        """Read the files and follow them. ``ConfigErrors`` when they are not usable now."""
        if self._files is None:
            return
        found, problems = await aside(self._read)
        raise_any(problems)
        self._models = found
        self._watcher = asyncio.get_running_loop().create_task(self._watch(), name="base-models")

    async def close(self) -> None:
        """Follow no longer."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher

    def dump_state(self) -> dict[str, Any]:
        """For the debug page."""
        return {"names": len(self._models), "problems": self._problems}

    async def _watch(self) -> None:
        assert self._files is not None  # noqa: S101 - only started with files
        while True:
            await asyncio.sleep(POLL_S)
            if not await aside(self._files.have_changed):
                continue
            found, problems = await aside(self._read)
            self._problems = [str(problem) for problem in problems]
            for problem in self._problems:
                log.error("plugin %s keeps the base models it has: %s", self.name, problem)
            if not problems:
                self._models = found
                log.info("plugin %s knows %d names of models", self.name, len(found))

    def _read(self) -> tuple[BaseModels, list[ConfigError]]:
        """The whole table with what files say; blocks."""
        problems: list[ConfigError] = []
        if self._files is None:
            return NONE, problems
        found = base_models([*self._inline, *self._files.read(problems)], problems)
        return found, problems
