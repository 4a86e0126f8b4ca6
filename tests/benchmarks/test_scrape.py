"""What the scrape benchmark makes of its readings."""

import msgspec
import pytest

from benchmarks.machine import describe_machine
from benchmarks.scrape import ScrapeOptions, ScrapeResult, complaints, render


def result(cores: float, scrapes: int, **options: object) -> ScrapeResult:
    return ScrapeResult(
        machine=describe_machine(),
        options=ScrapeOptions(**options),
        page_bytes=31_000,
        seconds=10.0,
        scrapes=scrapes,
        cores=cores,
        resident_bytes=50 * 2**20,
    )


def test_limit_is_in_proportion_to_endpoints_and_interval():
    assert result(0.2, 20_000).limit_cores == 0.25
    assert result(0.2, 20_000, endpoints=200).limit_cores == 0.5
    assert result(0.2, 20_000, interval="1s").limit_cores == pytest.approx(0.0125)


def test_cost_per_scrape_and_share_that_took_place():
    one = result(0.2, 19_000)
    assert one.us_per_scrape == pytest.approx(105.26, abs=0.01)
    assert one.kept == pytest.approx(0.95)
    assert complaints(one) == []


def test_too_many_cores_and_too_few_scrapes_are_complained_about():
    assert complaints(result(0.3, 10_000)) == [
        "0.300 cores, promised at most 0.250",
        "only 50% of the scrapes that the interval asks for took place",
    ]


def test_picker_that_does_not_scrape_costs_nothing_per_scrape():
    assert result(0.01, 0).us_per_scrape == 0.0


def test_table():
    header, _, row = (line.split() for line in render(result(0.2, 19_000)).splitlines())
    assert header[:2] == ["endpoints", "page"]
    assert row == ["100", "every", "50ms", "31,000", "1,900", "95%", "0.200", "0.250", "105.3", "50"]


def test_result_survives_json():
    one = result(0.2, 19_000)
    assert msgspec.json.decode(msgspec.json.encode(one), type=ScrapeResult) == one
