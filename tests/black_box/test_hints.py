"""Which servers may be picked, seen from outside: subset hints, the testing header, an empty pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.black_box import DROPPED, Pod, Site, refusal, request_body, request_headers

pytestmark = pytest.mark.integration

COMPLETION = {"model": "my-model", "prompt": "test"}

WITH_TESTING_FILTER = """
plugins:
- {type: header-based-testing-filter}
- {type: queue-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: header-based-testing-filter}, {pluginRef: queue-scorer, weight: 1}]
"""


@pytest.mark.parametrize(
    ("named", "expected"),
    [((0, 1, 2), 1), ((0, 2), 0), ((2,), 2)],
    ids=["all of them", "two of them", "one of them"],
)
async def test_the_best_of_a_subset_is_picked(tmp_path: Path, named: tuple[int, ...], expected: int) -> None:
    async with Site(tmp_path, Pod(3, 0.2), Pod(0, 0.1), Pod(10, 0.2)) as site:
        keys = [site.key(number) for number in named]
        assert await site.picked(COMPLETION, subset=keys) == site.key(expected)
        assert await site.picked(COMPLETION, subset=",".join(keys)) == site.key(expected)


@pytest.mark.parametrize("subset", [["192.168.1.99:8000"], []], ids=["matches nobody", "is empty"])
async def test_a_subset_without_servers_is_refused_and_names_the_reason(tmp_path: Path, subset: Any) -> None:
    async with Site(tmp_path, Pod(), Pod()) as site:
        status, error, headers = refusal(await site.ask(COMPLETION, subset=subset))

        assert status == 503
        assert error["message"] == "failed to find endpoint candidates for serving the request"
        assert headers[DROPPED] == "rejected-no-endpoints"
        assert headers["content-type"] == "application/json"
        assert int(headers["retry-after"]) >= 1


async def test_a_hint_under_another_key_is_none(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(3), Pod(0)) as site:
        assert await site.picked(COMPLETION, subset=[site.key(0)], key="something-else") == site.key(1)


async def test_the_testing_header_chooses_within_the_candidates(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(3), Pod(0), config=WITH_TESTING_FILTER) as site:
        header = ("test-epp-endpoint-selection", site.key(0))
        assert await site.picked(COMPLETION, header) == site.key(0)
        assert await site.picked(COMPLETION) == site.key(1)

        status, _, headers = refusal(await site.ask(COMPLETION, ("test-epp-endpoint-selection", "10.9.9.9")))
        assert (status, headers[DROPPED]) == (429, "rejected-saturated")


async def test_an_empty_pool_refuses_every_method_alike(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod()) as site:
        await site.keep()
        for messages in (
            [request_headers(), request_body(COMPLETION, end=True)],
            [request_headers(end=True, path="/v1/models")],
        ):
            status, error, headers = refusal(await site.converse(*messages))
            assert (status, error["type"]) == (503, "server_error")
            assert headers[DROPPED] == "rejected-no-endpoints"
