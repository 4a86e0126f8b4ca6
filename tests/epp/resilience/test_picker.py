"""The guard of a whole picker: it outlives configurations, and its numbers are documented."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dataplane.clock import SYSTEM_CLOCK
from dataplane.extproc.exchange import Ending
from dataplane.observability.exposition import MetricSet
from epp.app import Picker
from epp.interfaces.endpoint import EndpointTable
from epp.options import EppOptions
from epp.resilience.guard import Guard
from tests.support.request_path import destination, http_request, response

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: random-picker
- type: file-discovery
  parameters: {{path: {endpoints}}}
dataLayer:
  injectDefaults: false
  discovery: {{pluginRef: file-discovery}}
resilience: {resilience}
"""


class Site:
    """A picker over two endpoints that it does not look at."""

    def __init__(self, folder: Path) -> None:
        self.endpoints, self.config = folder / "endpoints.json", folder / "config.yaml"
        listed = [{"name": f"e{port}", "address": "127.0.0.1", "port": str(port)} for port in (1, 2)]
        self.endpoints.write_text(json.dumps({"endpoints": listed}))
        self.write("{ejection: {consecutiveFailures: 1, baseTime: 1h, maxTime: 2h}}")
        ports = {"grpc_port": 0, "grpc_health_port": 0, "metrics_port": 0}
        self.picker = Picker(
            EppOptions(
                **ports,
                host="127.0.0.1",
                metrics_host="127.0.0.1",
                secure_serving=False,
                config_file=str(self.config),
                watch_config=False,
            )
        )

    def write(self, resilience: str) -> None:
        self.config.write_text(CONFIG.format(endpoints=self.endpoints, resilience=resilience))

    def ask(self, status: int = 200) -> str:
        exchange = self.picker.handler.open()
        chosen = destination(exchange.on_request(http_request(), lambda _: None))
        exchange.on_response_headers(response(status=status))
        exchange.on_end(Ending.NATURAL)
        return chosen


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """A running picker."""
    site = Site(tmp_path)
    await site.picker.start()
    yield site
    await site.picker.stop()


async def test_who_is_ejected_stays_so_under_a_new_configuration(site: Site) -> None:
    bad = site.ask(503)
    assert bad not in {site.ask() for _ in range(20)}
    site.write("{ejection: {consecutiveFailures: 7}, fallbackEndpoints: 2}")
    assert await site.picker.reloader.reload() == []
    assert site.picker.guard.ejector.policy.consecutive_failures == 7
    assert bad not in {site.ask() for _ in range(20)}
    site.write("{ejection: {enabled: false}}")
    assert await site.picker.reloader.reload() == []
    assert {site.ask(503) for _ in range(50)} == {"127.0.0.1:1", "127.0.0.1:2"}


async def test_a_refused_configuration_changes_no_policy(site: Site) -> None:
    bad = site.ask(503)
    site.write("{ejection: {maxEjectedShare: 2}}")
    (problem,) = await site.picker.reloader.reload()
    assert problem == "resilience.ejection.maxEjectedShare: expected float <= 1.0"
    assert site.picker.guard.ejector.policy.consecutive_failures == 1
    assert bad not in {site.ask() for _ in range(20)}


async def test_the_debug_page_shows_who_is_ejected(site: Site) -> None:
    bad = site.ask(503)
    rows = {row["address"]: row for row in site.picker._pages().endpoints(10)["endpoints"]}
    good = ({"127.0.0.1:1", "127.0.0.1:2"} - {bad}).pop()
    assert rows[good]["ejection"] is None
    assert rows[bad]["ejection"]["state"] == "ejected"
    assert rows[bad]["ejection"]["backOffSteps"] == 1


def test_the_reference_page_lists_the_metrics() -> None:
    metrics = MetricSet()
    Guard(EndpointTable(), SYSTEM_CLOCK, random.Random(1), metrics)
    page = (Path(__file__).parents[3] / "docs/reference/metrics.md").read_text()
    described = {
        f"| `{m.name}` | {m.kind} | {', '.join(f'`{x}`' for x in m.labels)}" for m in metrics.describe()
    }
    assert {row for row in described if row in page} == described
    assert len(described) == 5
