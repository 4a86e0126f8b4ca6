"""``router-metrics-collector``: asks the pool of each model how loaded it is, at its ``metricsURL``.

Pools are asked side by side, a bounded number at a time and each within its timeout. One that cannot be asked
is not known, rather than remembered as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Self

import msgspec

from dataplane.config.decode import Duration
from dataplane.errors import ConfigError
from dataplane.observability.series import Series, SeriesSpec
from dataplane.plugin.base import PluginInfo, PluginParams, TypedName
from dataplane.plugin.state import listing
from ipp.interfaces.handle import Handle
from ipp.interfaces.models import ModelList, PoolLoad, PoolLoads, ServedModel

if TYPE_CHECKING:
    import aiohttp

log = logging.getLogger(__name__)

MAX_PAGE_BYTES: Final = 8 << 20
Metric = Annotated[str, msgspec.Meta(max_length=512)]

FIELDS: Final[Mapping[str, str]] = {
    "utilization": "utilization_metric",
    "cpu_usage": "cpu_cache_usage_metric",
    "queue_depth": "queue_depth_metric",
    "running_requests": "running_requests_metric",
}
"""Of ``PoolLoad`` -> the parameter that names its series."""


class RouterMetricsCollectorParams(PluginParams, frozen=True, kw_only=True):
    """Series are written ``name`` or ``name{label=value,...}``; an empty one is not read."""

    interval: Duration = Duration(30.0)
    """Time between two rounds."""
    timeout: Duration = Duration(5.0)
    """The longest that one pool may take."""
    utilization_metric: Metric = "llm_d_epp_average_kv_cache_utilization"
    """Share of the KV cache in use."""
    queue_depth_metric: Metric = "llm_d_epp_average_queue_size"
    """Requests that wait."""
    cpu_cache_usage_metric: Metric = ""
    """Share of the KV cache in host memory in use."""
    running_requests_metric: Metric = "llm_d_epp_average_running_requests"
    """Requests that run."""
    max_concurrent: Annotated[int, msgspec.Meta(ge=1, le=256)] = 8
    """Pools asked at a time."""

    def __post_init__(self) -> None:
        for field in ("interval", "timeout"):
            if not 0.01 <= getattr(self, field) <= 86_400:
                raise ConfigError("must be from 10ms to 24h", path=field)


class RouterMetricsCollector:
    """Models without a URL are not asked for."""

    info: ClassVar = PluginInfo("router-metrics-collector", RouterMetricsCollectorParams)
    provides: ClassVar = (PoolLoads,)
    needs: ClassVar = (ModelList,)

    def __init__(self, name: TypedName, params: RouterMetricsCollectorParams, handle: Handle) -> None:
        """``ConfigError`` for what names no series."""
        self.name = name
        self._params = params
        self._specs: dict[str, SeriesSpec] = {}
        for field, parameter in FIELDS.items():
            text = getattr(params, parameter)
            if text:
                first, *rest = parameter.split("_")
                path = first + "".join(word.capitalize() for word in rest)
                try:
                    self._specs[field] = SeriesSpec.parse(text)
                except ValueError as error:
                    raise ConfigError(str(error), path=path) from None
        self._models = handle.data.table(ModelList)
        self._loads = handle.data.table(PoolLoads)
        self._metrics = handle.metrics.of_models
        self._failing: dict[str, str] = {}
        self._has_heir = False
        self._task: asyncio.Task[None] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Ask from now on."""
        import aiohttp

        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._params.timeout), cookie_jar=aiohttp.DummyCookieJar()
        )
        self._task = asyncio.get_running_loop().create_task(self._run(), name="pool-loads")

    async def close(self) -> None:
        """Ask no longer, and show nothing old."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        if not self._has_heir:
            for model in list(self._loads.by_model):
                self._forget(model)

    def inherit(self, predecessor: Self) -> None:
        """Go on with what is known until the first round is over; what is shown is ours from now on."""
        predecessor._has_heir = True
        self._loads.by_model = predecessor._loads.by_model | self._loads.by_model

    async def collect(self) -> None:
        """One round over all models that have a URL."""
        models = [model for model in self._models.models if model.metrics_url]
        names = {model.name for model in models}
        for name in [name for name in self._loads.by_model if name not in names]:
            self._forget(name)
        for name in [name for name in self._failing if name not in names]:
            del self._failing[name]
        room = asyncio.Semaphore(self._params.max_concurrent)
        await asyncio.gather(*(self._ask(model, room) for model in models))

    def dump_state(self) -> dict[str, Any]:
        """For the debug page."""
        loads = self._loads.by_model
        shown = ({"model": model, **load._asdict()} for model, load in loads.items())
        return {**listing("models", shown, len(loads)), "failing": dict(self._failing)}

    async def _run(self) -> None:
        while True:
            try:
                await self.collect()
            except Exception:  # a defect here must not end the asking for good
                log.exception("plugin %s could not finish a round", self.name)
            await asyncio.sleep(self._params.interval)

    async def _ask(self, model: ServedModel, room: asyncio.Semaphore) -> None:
        async with room:
            started = perf_counter()
            page, reason = await self._page(model.metrics_url)
            self._metrics.scrape.observe(perf_counter() - started)
        values = {field: Series(spec).read(page) for field, spec in self._specs.items()} if page else {}
        if not reason and self._specs and all(value is None for value in values.values()):
            reason = "parse"
        label = self._metrics.models.fold(model.name)
        if reason:
            self._metrics.scrape_failures.child(label, reason).inc()
            if self._failing.get(model.name) != reason:
                log.warning("the pool of %s tells nothing of its load: %s", model.name, reason)
            self._failing[model.name] = reason
            self._forget(model.name)
            return
        self._failing.pop(model.name, None)
        self._loads.by_model[model.name] = PoolLoad(**values)
        for field, value in values.items():
            family = getattr(self._metrics, field)
            if value is None:
                family.discard(label)
            else:
                family.child(label).set(value)

    async def _page(self, url: str) -> tuple[bytes, str]:
        """The page's text, and why there is none."""
        import aiohttp

        assert self._session is not None  # noqa: S101 - only asked between start and close
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return b"", "http_status"
                page = bytearray()
                async for chunk in answer.content.iter_any():
                    page += chunk
                    if len(page) > MAX_PAGE_BYTES:
                        return b"", "parse"
                return bytes(page), ""
        except TimeoutError:
            return b"", "timeout"
        except (aiohttp.InvalidURL, ValueError):
            return b"", "request_build"
        except (aiohttp.ClientError, OSError):
            return b"", "dial"

    def _forget(self, model: str) -> None:
        self._loads.by_model.pop(model, None)
        label = self._metrics.models.fold(model)
        for field in FIELDS:
            getattr(self._metrics, field).discard(label)
