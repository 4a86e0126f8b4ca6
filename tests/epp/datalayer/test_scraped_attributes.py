"""Attributes that scrapes leave on endpoints, and several sources beside one another."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import pytest

from dataplane.plugin.base import DataKey, TypedName
from epp.datalayer import target
from epp.datalayer.scraper import Scraper
from epp.interfaces.data_layer import Measurements, UnreadablePageError
from epp.interfaces.endpoint import Endpoint, EndpointSpec, EndpointTable
from epp.interfaces.handle import Handle
from epp.plugins.extractors.core_metrics import CoreMetricsExtractor, CoreMetricsExtractorParams
from epp.plugins.sources.model_server_metrics import ModelServerMetricsParams, ModelServerMetricsSource
from tests.epp.datalayer.model_server import ModelServer, answer, page
from tests.support.waiting import until

HEAT = DataKey[float]("Heat", "thermometer")


class Thermometer:
    """Reads a body that is a number."""

    name = TypedName("thermometer", "thermometer")
    expects: ClassVar[str] = "prometheus-text"
    produces: Sequence[DataKey[Any]] = (HEAT,)

    def reader(self, endpoint: Endpoint) -> Callable[[bytes], Measurements]:
        return lambda body: Measurements(attributes={HEAT: _number(body)})


def _number(body: bytes) -> float:
    try:
        return float(body)
    except ValueError:
        raise UnreadablePageError("it is no number") from None


class Errors:
    """Counts errors by the source's name."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def poll_error(self, source_type: str) -> None:
        self.seen.append("poll")

    def extract_error(self, source_type: str, extractor_type: str) -> None:
        self.seen.append(extractor_type)


def source(name: str, *extractors: Any, **params: Any) -> ModelServerMetricsSource:
    made = ModelServerMetricsSource(
        TypedName("metrics-data-source", name), ModelServerMetricsParams(**params), Handle(EndpointTable())
    )
    made.bind(extractors)
    return made


class Pool:
    """One endpoint whose heat and load are on ports of their own."""

    def __init__(self, *, staleness_s: float = 60.0) -> None:
        self.table, self.errors = EndpointTable(), Errors()
        self.staleness_s = staleness_s

    async def __aenter__(self) -> Self:
        self.heat, self.load = ModelServer(answer(b"21")), ModelServer(answer(page(waiting=7)))
        await self.heat.start()
        await self.load.start()
        core = CoreMetricsExtractor(
            TypedName("core-metrics-extractor", "core"),
            CoreMetricsExtractorParams(),
            Handle(self.table),
        )
        sources = [source("heat", Thermometer(), port=self.heat.port), source("load", core)]
        self.scraper = Scraper(
            self.table, sources, self.errors, base_interval_s=0.01, staleness_s=self.staleness_s
        )
        self.endpoint = self.table.add(EndpointSpec("a", "default", "127.0.0.1", self.load.port))
        self.scraper.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.scraper.stop()
        await self.heat.stop()
        await self.load.stop()

    def heat_of(self, endpoint: Endpoint) -> float | None:
        return self.table.attributes.get(endpoint.slot, HEAT.by(""))


async def hang(writer: asyncio.StreamWriter) -> None:
    """Never answer."""


async def test_each_source_is_read_by_its_own_extractors_and_the_one_of_load_dates_the_row():
    async with Pool() as pool:
        slot = pool.endpoint.slot
        await until(lambda: pool.heat_of(pool.endpoint) == 21.0 and bool(pool.table.fresh[slot]))
        assert pool.table.waiting[slot] == 7
        await until(lambda: len(pool.heat.requests) > 3)
        assert pool.table.applied[slot] <= len(pool.load.requests)
        assert pool.errors.seen == []


async def test_a_dead_source_of_attributes_leaves_the_load_trusted():
    async with Pool() as pool:
        await until(lambda: pool.heat_of(pool.endpoint) is not None)
        await until(lambda: bool(pool.table.fresh[pool.endpoint.slot]))
        await pool.heat.stop()
        await until(lambda: "poll" in pool.errors.seen)
        assert pool.table.fresh[pool.endpoint.slot]
        assert pool.table.absent == 0
        problem = pool.scraper.problem(pool.endpoint)
        assert problem.startswith(f"heat (metrics-data-source): port {pool.heat.port} of 127.0.0.1 cannot be")


async def test_attributes_that_are_no_longer_renewed_lapse(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target, "TIMEOUT_S", 0.4)
    async with Pool(staleness_s=0.1) as pool:
        await until(lambda: pool.heat_of(pool.endpoint) is not None)
        pool.heat.answer = hang
        await until(lambda: pool.heat_of(pool.endpoint) is None)
        pool.heat.answer = answer(b"22")
        await until(lambda: pool.heat_of(pool.endpoint) == 22.0)


async def test_an_answer_the_extractor_cannot_read_is_said_and_changes_nothing():
    async with Pool() as pool:
        await until(lambda: pool.heat_of(pool.endpoint) is not None)
        pool.heat.answer = answer(b"warm")
        await until(lambda: "thermometer" in pool.errors.seen)
        assert pool.heat_of(pool.endpoint) == 21.0
        assert pool.scraper.problem(pool.endpoint) == (
            "heat (metrics-data-source): thermometer cannot read the answer: it is no number; "
            "check scheme, path and port of the data source"
        )


async def test_an_attribute_that_the_next_scrapes_engine_does_not_have_is_dropped():
    async with Pool() as pool:
        await until(lambda: pool.heat_of(pool.endpoint) is not None)
        pool.heat.answer = hang
        spec = EndpointSpec("a", "default", "127.0.0.1", pool.load.port, {"new": "label"})
        asked = len(pool.heat.requests)
        await until(lambda: len(pool.heat.requests) > asked)  # the last answer is in
        assert pool.heat_of(pool.endpoint) == 21.0
        pool.heat.answer = answer(b"warm")
        await pool.heat.stop()
        await pool.heat.start()
        pool.table.relabel("default/a", spec)
        await until(lambda: pool.heat_of(pool.endpoint) is None)


async def test_an_attribute_that_is_not_declared_is_dropped_and_said_once(caplog: pytest.LogCaptureFixture):
    table = EndpointTable()
    server = ModelServer(answer(b"21"))
    await server.start()
    thermometer = Thermometer()
    thermometer.produces = ()
    scraper = Scraper(table, [source("heat", thermometer)], Errors(), base_interval_s=0.01, staleness_s=60.0)
    row = table.add(EndpointSpec("a", "default", "127.0.0.1", server.port))
    scraper.start()
    try:
        await until(lambda: len(server.requests) > 4)
        assert table.attributes.of(row.slot) == {}
        assert scraper.problem(row).startswith("heat (metrics-data-source): thermometer failed on the answer")
        failures = [record for record in caplog.records if record.exc_info]
        assert [str(record.exc_info[1]) for record in failures if record.exc_info] == [
            "Heat/thermometer is not among what it declares to produce"
        ]
    finally:
        scraper.stop()
        await server.stop()
