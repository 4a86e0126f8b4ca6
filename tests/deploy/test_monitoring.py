"""Dashboards and alerts ask for nothing that running processes do not expose, and are well formed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from controlplane.xds.hub import Hub
from dataplane.observability.exposition import Description
from ipp.app import Processor
from ipp.options import parse_args
from tests.support.black_box import ANSWERED, Pod, Site, request_body, request_headers
from tests.support.promql import Asked, asked

ROOT = Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "deploy/grafana/endpoint-picker.json"
CONTROL_PLANE = ROOT / "deploy/grafana/control-plane.json"
PROCESSOR = ROOT / "deploy/grafana/payload-processor.json"
ALERTS = ROOT / "deploy/prometheus/alerts.yaml"
SCRAPE = ROOT / "deploy/prometheus/prometheus.yaml"
GUIDE = ROOT / "docs/guides/observability.md"

OF_PROCESSES = ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds")
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus adds to what it scrapes."""


def dashboard(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def panels(file: Path = DASHBOARD) -> list[dict[str, Any]]:
    """Panels that show something."""
    return [panel for panel in dashboard(file)["panels"] if panel["type"] != "row"]


def alerts(group: str) -> list[dict[str, Any]]:
    """The rules of a group."""
    groups = {each["name"]: each["rules"] for each in yaml.safe_load(ALERTS.read_text())["groups"]}
    assert list(groups) == ["endpoint-picker", "payload-processor"]
    rules: list[dict[str, Any]] = groups[group]
    return rules


def expression(text: str) -> Asked:
    """What a query of the dashboard asks for, its variables filled in."""
    return asked(text.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$model", ".*"))


async def exposed(folder: Path) -> dict[str, set[str]]:
    """Sample name -> labels, of a picker that has served a request; families without samples included."""
    async with Site(folder, Pod(), Pod()) as site:
        stream = (request_headers(), request_body({"model": "m", "prompt": "p", "stream": True}, end=True))
        await site.converse(*stream, *ANSWERED)
        text = await site.page("/metrics")
        described = site.picker.metrics.numbers.describe()
    return samples(text, described)


async def exposed_by_processor(folder: Path) -> dict[str, set[str]]:
    """The same of a payload processor that has a control plane."""
    token = folder / "token"
    token.write_text("t")
    free = [f"--{name}-port=0" for name in ("grpc", "grpc-health", "metrics")]
    options = ["--host=127.0.0.1", "--secure-serving=false", *free]
    processor = Processor(parse_args([*options, "--xds-server=127.0.0.1:1", f"--xds-token-file={token}"]))
    await processor.admin.start()
    try:
        url = f"http://127.0.0.1:{processor.admin.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
    finally:
        await processor.stop()
    return samples(text, processor.metrics.numbers.describe())


def samples(text: str, described: Sequence[Description]) -> dict[str, set[str]]:
    """Sample name -> labels, of a page and of families without samples."""
    found: dict[str, set[str]] = {"up": set()}
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found.setdefault(name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    for each in described:
        names = [each.name]
        if each.kind == "histogram":
            names = [f"{each.name}_{part}" for part in ("bucket", "sum", "count")]
        for name in names:
            more = {"le"} if name.endswith("_bucket") else set()
            found.setdefault(name, set()).update(each.labels, more)
    # The labels of two counters of the transport are seen only when there is something to count.
    found["pointsman_extproc_protocol_errors_total"] = {"code"}
    found["pointsman_extproc_floods_total"] = {"limit"}
    return found


def missing(query: Asked, found: Mapping[str, set[str]]) -> list[str]:
    """What a query asks for in vain."""
    absent = [name for name in query.metrics if name not in found]
    for name, labels in query.metrics.items():
        unknown = labels - found.get(name, labels) - OF_PROMETHEUS
        absent += [f"{name}{{{label}}}" for label in sorted(unknown)]
    known = set().union(*(found.get(name, set()) for name in query.metrics)) | OF_PROMETHEUS
    return absent + [f"by {label}" for label in sorted(query.grouped - known)]


@pytest.mark.integration
async def test_a_running_picker_exposes_all_that_dashboard_and_alerts_ask_for(tmp_path: Path):
    found = await exposed(tmp_path)
    queries = {target["expr"] for panel in panels() for target in panel["targets"]}
    queries |= {rule["expr"] for rule in alerts("endpoint-picker")}
    in_vain = {query: lacking for query in queries if (lacking := missing(expression(query), found))}
    assert in_vain == {}
    assert len(queries) > 50


@pytest.mark.integration
async def test_a_running_processor_exposes_all_that_dashboard_and_alerts_ask_for(tmp_path: Path):
    found = await exposed_by_processor(tmp_path)
    queries = {target["expr"] for panel in panels(PROCESSOR) for target in panel["targets"]}
    queries |= {rule["expr"] for rule in alerts("payload-processor")}
    in_vain = {query: lacking for query in queries if (lacking := missing(expression(query), found))}
    assert in_vain == {}
    assert len(queries) > 50
    asked_for = {family_of(name) for query in queries for name in expression(query).metrics}
    own = {family_of(name) for name in found if name.startswith(("ipp_", "pointsman_ipp_"))}
    assert own - asked_for == set()


def family_of(sample: str) -> str:
    """The family that a sample belongs to."""
    return re.sub("_(bucket|sum|count)$", "", sample)


def test_a_discovery_server_exposes_all_that_its_dashboard_asks_for():
    found: dict[str, set[str]] = {name: set() for name in OF_PROCESSES}
    for each in Hub().metrics.numbers.describe():
        found[each.name] = set(each.labels)
        found[f"{each.name}_bucket"] = {*each.labels, "le"}
    queries = {target["expr"] for panel in panels(CONTROL_PLANE) for target in panel["targets"]}
    in_vain = {query: lacking for query in queries if (lacking := missing(expression(query), found))}
    assert in_vain == {}
    assert len({dashboard(file)["uid"] for file in (DASHBOARD, CONTROL_PLANE, PROCESSOR)}) == 3


def test_the_check_finds_what_is_not_there():
    found = {"a_total": {"x"}, "b_bucket": {"le"}}
    assert missing(asked('sum by (x) (rate(a_total{x="1"}[5m]))'), found) == []
    assert missing(asked('sum by (y) (rate(a_total{z=~"1"}[5m]))'), found) == ["a_total{z}", "by y"]
    assert missing(asked("histogram_quantile(0.5, sum by (le) (rate(b_bucket[1m]))) > gone"), found) == [
        "gone"
    ]
    assert missing(asked("a_total unless on (job, instance) b_bucket offset 5m"), found) == []
    with pytest.raises(ValueError, match="is not closed"):
        asked("sum(rate(a_total[5m])")
    with pytest.raises(ValueError, match="one \\) too many"):
        asked("a_total)")
    with pytest.raises(ValueError, match="is no PromQL"):
        asked("a_total & b")


@pytest.mark.parametrize("file", [DASHBOARD, CONTROL_PLANE, PROCESSOR], ids=lambda file: file.stem)
def test_panels_have_ids_and_places_of_their_own(file: Path):
    every = dashboard(file)["panels"]
    ids = [panel["id"] for panel in every]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for panel in every
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    titles = [panel["title"] for panel in every]
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("file", [DASHBOARD, CONTROL_PLANE, PROCESSOR], ids=lambda file: file.stem)
def test_every_panel_says_what_it_shows_and_reads_from_the_chosen_source(file: Path):
    every = panels(file)
    assert [panel["title"] for panel in every if not panel["description"]] == []
    sources = {json.dumps(part["datasource"]) for panel in every for part in (panel, *panel["targets"])}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}


@pytest.mark.parametrize("file", [DASHBOARD, CONTROL_PLANE, PROCESSOR], ids=lambda file: file.stem)
def test_legends_name_labels_that_the_query_leaves(file: Path):
    wrong = {}
    for panel in panels(file):
        for target in panel["targets"]:
            query = expression(target["expr"])
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            if query.grouped and not named <= query.grouped:
                wrong[target["expr"]] = named - query.grouped
    assert wrong == {}


def test_every_alert_has_a_severity_and_its_place_in_the_guide():
    rules = [*alerts("endpoint-picker"), *alerts("payload-processor")]
    assert {rule["labels"]["severity"] for rule in rules} == {"critical", "warning"}
    assert [rule["alert"] for rule in rules if not rule["annotations"]["summary"]] == []
    section = GUIDE.read_text().partition("## Alerts")[2].partition("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert documented == [rule["alert"] for rule in rules]


def test_the_scrape_configuration_loads_the_alerts_and_names_their_job():
    document = yaml.safe_load(SCRAPE.read_text())
    assert document["rule_files"] == [ALERTS.name]
    names = [each["job_name"] for each in document["scrape_configs"]]
    assert names == ["endpoint-picker", "payload-processor", "control-plane"]
    jobs = re.findall(r'job="([^"]+)"', ALERTS.read_text())
    assert set(jobs) == {"endpoint-picker", "payload-processor"}
