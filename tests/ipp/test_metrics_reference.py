"""The reference of metrics has all that a whole processor exposes, under the same labels."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dataplane.errors import (
    BadRequestError,
    DeadlineExceededError,
    InternalError,
    PayloadTooLargeError,
    ResourceExhaustedError,
    ServiceUnavailableError,
)
from ipp.app import Processor
from ipp.options import IppOptions
from ipp.plugins.processors.guardrails import RefusedError
from tests.architecture.tree import ROOT

PAGE = ROOT / "docs/reference/processor-metrics.md"
GUIDES = ("docs/guides/model-selection.md", "docs/guides/payload-processor.md")
REFUSALS = (
    BadRequestError,
    DeadlineExceededError,
    InternalError,
    PayloadTooLargeError,
    RefusedError,
    ResourceExhaustedError,
    ServiceUnavailableError,
)
PAGES = sorted((ROOT / "docs/plugins-ipp").glob("*.md"))


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    """The metrics on the page: kind and labels."""
    rows = re.findall(r"^\| `(\w*ipp_\w+)` \| (\w+) \| (.*?) ?\|", PAGE.read_text(), re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


@pytest.fixture
def processor(tmp_path: Path) -> Processor:
    """A processor with everything that adds metrics; it is not started."""
    token = tmp_path / "token"
    token.write_text(json.dumps("t"))
    return Processor(
        IppOptions(
            xds_server="127.0.0.1:1",
            xds_token_file=str(token),
            valkey_url="redis://127.0.0.1:1",
        )
    )


async def test_every_metric_is_documented_with_its_kind_and_labels(processor: Processor) -> None:
    declared = {each.name: (each.kind, each.labels) for each in processor.metrics.numbers.describe()}
    assert documented() == declared
    assert len(declared) == len(re.findall(r"^\| `\w*ipp_", PAGE.read_text(), re.MULTILINE))


def test_rejections_are_counted_under_the_codes_of_the_page() -> None:
    told = re.search(r"`pointsman_ipp_requests_rejected_total`.*", PAGE.read_text())
    assert told is not None
    assert set(re.findall(r"`([A-Z]\w+)`", told[0])) == {each.code for each in REFUSALS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_plugins_pages_name_only_metrics_that_there_are(page: Path) -> None:
    section = page.read_text().partition("## Metrics")[2]
    named = set(re.findall(r"`((?:pointsman_)?ipp_\w+)", section))
    assert named <= set(documented())


@pytest.mark.parametrize("name", GUIDES)
def test_guides_name_only_metrics_that_there_are(name: str) -> None:
    named = set(re.findall(r"`((?:pointsman_)?ipp_\w+)", (ROOT / name).read_text()))
    assert named <= set(documented())
