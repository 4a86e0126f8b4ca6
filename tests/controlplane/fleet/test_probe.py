"""A look at a picker finds what it says, or nothing; whoever else answers is no picker."""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from controlplane.fleet.local.counts import Counts
from controlplane.fleet.local.probe import MAX_ENDPOINTS_SHOWN, Probe, probe


def row(name: str) -> dict[str, Any]:
    return {"name": name, "address": f"{name}:1", "fresh": True, "waiting": 2.0, "attributes": {"x": 1}}


async def looked(pages: dict[str, Any]) -> Probe:
    """What is found where these pages are served: text, or JSON-able data."""

    async def serve(request: web.Request) -> web.Response:
        page = pages.get(request.path)
        if page is None:
            return web.Response(status=404)
        return web.Response(text=page) if isinstance(page, str) else web.json_response(page)

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        assert server.port is not None
        return await probe(session, server.port, with_counts=True)


async def test_everything_a_picker_tells_is_found() -> None:
    endpoints = [row(f"e{number}") for number in range(MAX_ENDPOINTS_SHOWN)]
    page = {"total": 5000, "fresh": 4000, "discoveryProblems": ["p"] * 50, "endpoints": endpoints}
    reload = {"revision": "chat/3@5f0c"}
    found = await looked(
        {
            "/readyz": "ok",
            "/debug/endpoints": page,
            "/debug/config": {"reload": reload},
            "/metrics": 'llm_d_epp_request_total{model_name="a"} 5\n',
        }
    )
    assert found.endpoints is not None
    assert (found.endpoints["total"], found.endpoints["fresh"], found.endpoints["truncated"]) == (
        *(5000, 4000, True),
    )
    assert len(found.endpoints["items"]) == MAX_ENDPOINTS_SHOWN
    assert (found.endpoints["items"][0]["name"], found.endpoints["items"][0]["waiting"]) == ("e0", 2.0)
    assert "attributes" not in found.endpoints["items"][0]
    assert (found.is_ready, len(found.problems), found.counts) == (True, 10, Counts(5, 0))
    assert found.running == "chat/3@5f0c"


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {"/readyz": "ok", "/debug/endpoints": "no JSON"},
        {"/readyz": "ok", "/debug/endpoints": []},
        {"/readyz": "ok", "/debug/endpoints": {"total": 1, "endpoints": 3}},
        {
            "/readyz": "ok",
            "/debug/endpoints": {"total": 1, "fresh": 1, "discoveryProblems": [], "endpoints": [3]},
        },
        {
            "/readyz": "ok",
            "/debug/endpoints": {"total": 0, "fresh": 0, "discoveryProblems": [], "endpoints": []},
            "/debug/config": {"reload": []},
        },
        {"/readyz": "ok", "/debug/endpoints": "[" * 100_000},
        {"/readyz": "ok", "/debug/endpoints": " " * (5 << 20)},
    ],
)
async def test_what_makes_no_sense_is_nothing(pages: dict[str, Any]) -> None:
    assert await looked(pages) == Probe()


async def test_where_nobody_listens_nothing_is_found() -> None:
    async with aiohttp.ClientSession() as session:
        assert await probe(session, 1, with_counts=False) == Probe()
