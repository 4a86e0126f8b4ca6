"""Endpoints that fail, through a real Envoy: left out, brought back, and stood in for by those named next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support import simulated
from tests.support.waiting import until

pytestmark = pytest.mark.integration

BROKEN = 0
"""Index of the replica that fails."""


def config(resilience: str, *, flags: str = "[]", mode: str = "FailOpen") -> str:
    """Three equal replicas behind a picker that prefers none of them."""
    return f"""
pools:
  - name: pool
    models: [tiny]
    failureMode: {mode}
    simulator: {{replicas: 3, profile: instant}}
    picker:
      flags: {flags}
      config:
        apiVersion: llm-d.ai/v1alpha1
        kind: EndpointPickerConfig
        plugins: [{{type: queue-scorer}}]
        resilience: {resilience}
"""


class Rig(simulated.Rig):
    """A running gateway, one of whose replicas fails."""

    async def ask(self, times: int) -> list[int]:
        """Statuses of so many requests, one after the other."""
        body = {"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
        statuses = []
        for _ in range(times):
            async with self.session.post(f"{self.plan.url}/v1/chat/completions", json=body) as answer:
                await answer.read()
                statuses.append(answer.status)
        return statuses

    async def decisions(self, newest: int) -> list[dict[str, Any]]:
        """The last decisions, oldest first, once their responses are over."""

        async def over() -> bool:
            found = (await self.page(f"/debug/decisions?limit={newest}"))["decisions"]
            return all(decision["response"]["ending"] for decision in found)

        await until(over)
        found: list[dict[str, Any]] = (await self.page(f"/debug/decisions?limit={newest}"))["decisions"]
        return found[::-1]

    async def fail(self, percentage: int) -> None:
        """Let the broken replica answer so many requests with 503, at once."""
        failing = {"failure-injection-rate": percentage, "failure-types": ["server_error"]}
        await self.act("config", failing, BROKEN)

    async def broken(self) -> dict[str, Any]:
        """The broken replica as the picker sees it."""
        (row,) = [row for name, row in (await self.endpoints()).items() if name.endswith(f"-{BROKEN}")]
        return row


@asynccontextmanager
async def running(tmp_path: Path, text: str) -> AsyncIterator[Rig]:
    """The gateway of a configuration, ready."""
    async with simulated.running(text, tmp_path) as rig:
        yield Rig(rig.gateway, rig.session)


async def test_a_replica_that_answers_errors_fast_loses_its_traffic_and_gets_it_back(tmp_path: Path) -> None:
    text = config("{ejection: {baseTime: 1s, maxTime: 2s}, slowStart: {window: 1s}}")
    async with running(tmp_path, text) as rig:
        address = (await rig.broken())["address"]
        await rig.fail(100)
        assert set(await rig.ask(60)) == {200}, "Envoy retries a 503 elsewhere"
        first = [address in decision["destination"] for decision in await rig.decisions(60)]
        assert sum(first) >= 5, "it draws traffic until it has failed five times"
        assert (await rig.broken())["ejection"]["state"] in {"ejected", "probing"}
        assert await rig.metric('pointsman_epp_ejections_total{reason="consecutive-failures"}') == 1

        assert set(await rig.ask(100)) == {200}
        sent = sum(address in decision["destination"] for decision in await rig.decisions(100))
        assert sent <= await rig.metric("pointsman_epp_ejections_total"), "a probe for each ejection at most"

        await rig.fail(0)

        async def back() -> bool:
            await rig.ask(3)
            row = await rig.broken()
            return row["ejection"] is None or row["ejection"]["state"] == "watched"

        await until(back)

        async def full_share() -> bool:
            await rig.ask(20)
            sent = [address in decision["destination"] for decision in await rig.decisions(20)]
            return sum(sent) >= 3

        await until(full_share)
        assert await rig.metric("pointsman_epp_ejected_endpoints") == 0


async def test_when_the_first_named_says_503_the_second_serves(tmp_path: Path) -> None:
    async with running(tmp_path, config("{fallbackEndpoints: 3, ejection: {enabled: false}}")) as rig:
        address = (await rig.broken())["address"]
        await rig.fail(100)
        assert set(await rig.ask(40)) == {200}
        decisions = await rig.decisions(40)
        assert {len(decision["destination"]) for decision in decisions} == {3}
        failed = [decision for decision in decisions if decision["destination"][0] == address]
        assert failed, "some requests begin at the broken one"
        for decision in decisions:
            first, second, _ = decision["destination"]
            assert decision["response"]["served"] == (second if first == address else first)
        listed = await rig.metric('pointsman_epp_fallback_served_total{place="listed"}')
        assert listed == len(failed)
        assert await rig.metric("llm_d_epp_inflight_requests") == 0


async def test_when_the_first_named_refuses_connections_the_second_serves(tmp_path: Path) -> None:
    # The picker must not learn of the dead server by itself, so it hardly reads metrics.
    text = config(
        "{fallbackEndpoints: 2, ejection: {baseTime: 60s}}", flags="[--refresh-metrics-interval=10m]"
    )
    async with running(tmp_path, text) as rig:
        address = (await rig.broken())["address"]
        await rig.act("kill", {}, BROKEN)
        assert set(await rig.ask(60)) == {200}
        decisions = await rig.decisions(60)
        failed = [decision for decision in decisions if decision["destination"][0] == address]
        assert len(failed) == 5, "after five failures it is named no more"
        assert {decision["response"]["served"] for decision in failed} == {
            decision["destination"][1] for decision in failed
        }
        row = await rig.broken()
        assert row["listens"], "it is not the scraper that has noticed"
        assert row["ejection"]["state"] == "ejected"
        assert await rig.metric('pointsman_epp_endpoint_failures_total{kind="passed-over"}') == 5


@pytest.mark.parametrize("mode", ["FailOpen", "FailClose"])
async def test_when_all_that_are_named_are_dead_the_failure_mode_decides(tmp_path: Path, mode: str) -> None:
    text = config(
        "{fallbackEndpoints: 2, ejection: {enabled: false}}",
        flags="[--refresh-metrics-interval=10m]",
        mode=mode,
    )
    async with running(tmp_path, text) as rig:
        dead = {row["address"] for row in (await rig.page("/debug/endpoints"))["endpoints"][:2]}
        for replica in (0, 1):
            await rig.act("kill", {}, replica)
        statuses = await rig.ask(40)
        decisions = await rig.decisions(40)
        exhausted = [set(decision["destination"]) == dead for decision in decisions]
        assert any(exhausted)
        refused = 200 if mode == "FailOpen" else 503
        assert statuses == [refused if is_exhausted else 200 for is_exhausted in exhausted]
        alive = {row["address"] for row in (await rig.page("/debug/endpoints"))["endpoints"]} - dead
        served = {d["response"]["served"] for d in decisions if d["response"]["status"] == 200}
        assert served == alive


async def test_in_a_pool_that_fails_closed_the_client_s_503_ejects_a_dead_endpoint(tmp_path: Path) -> None:
    text = config("{ejection: {baseTime: 60s}}", flags="[--refresh-metrics-interval=10m]", mode="FailClose")
    async with running(tmp_path, text) as rig:
        address = (await rig.broken())["address"]
        await rig.act("kill", {}, BROKEN)
        statuses = await rig.ask(60)
        decisions = await rig.decisions(60)
        refused = [
            decision["response"]["status"] for decision in decisions if address in decision["destination"]
        ]
        assert refused == [503] * 5
        assert statuses.count(503) == 5
        assert statuses[-20:] == [200] * 20


async def test_a_client_that_leaves_is_told_from_a_server_that_breaks(tmp_path: Path) -> None:
    text = config("{ejection: {consecutiveFailures: 1, baseTime: 60s}}", mode="FailClose").replace(
        "profile: instant", "profile: instant, flags: [--time-to-first-token, 60s]"
    )
    async with running(tmp_path, text) as rig:

        async def in_flight(count: int) -> None:
            async def arrived() -> bool:
                return (await rig.metric("llm_d_epp_inflight_requests")) == count

            await until(arrived)

        leaving = [asyncio.create_task(rig.ask(1)) for _ in range(9)]
        await in_flight(9)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await in_flight(0)
        endings = {(d["response"]["status"], d["response"]["ending"]) for d in await rig.decisions(9)}
        assert endings == {(0, "client-disconnect")}
        assert await rig.metric("pointsman_epp_endpoint_failures_total") == 0

        staying = [asyncio.create_task(rig.ask(1)) for _ in range(9)]
        await in_flight(9)
        inflight = (await rig.broken())["inflight"]
        assert inflight > 0
        await rig.act("kill", {}, BROKEN)
        broken = (await rig.broken())["address"]

        async def heard() -> bool:
            return await rig.metric('pointsman_epp_endpoint_failures_total{kind="status"}') == inflight

        await until(heard)
        for task in staying:
            task.cancel()
        await asyncio.gather(*staying, return_exceptions=True)
        for decision in await rig.decisions(9):
            status = 503 if decision["destination"] == [broken] else 0
            assert decision["response"]["status"] == status
