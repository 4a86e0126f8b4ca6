"""Sessions, seen from outside: where they are kept, by whom, and where they go when their server is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.black_box import (
    Pod,
    Site,
    destination,
    request_body,
    request_headers,
    response_body,
    response_headers,
    set_headers,
)

pytestmark = pytest.mark.integration

COMPLETION = {"model": "m", "prompt": "hello"}
TOKEN = "x-session-token"
EXPERIMENTAL = ("--allow-experimental-plugins",)

FILTER = """
plugins:
- {type: session-affinity-filter}
- {type: queue-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: session-affinity-filter}, {pluginRef: queue-scorer}]
"""
SCORER = """
plugins:
- {type: session-affinity-scorer}
- {type: queue-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: session-affinity-scorer, weight: 10}, {pluginRef: queue-scorer, weight: 1}]
"""
BY_ID = """
plugins:
- {type: agent-identity}
- type: session-affinity-filter
  parameters:
    strategy: session_id
    sessionIdConfig: {sources: [{header: x-session-id}, {attribute: agent-identity}]}
- {type: queue-scorer}
schedulingProfiles:
- name: default
  plugins: [{pluginRef: session-affinity-filter}, {pluginRef: queue-scorer}]
"""


async def turn(site: Site, *headers: tuple[str, str], status: int = 200) -> tuple[str, dict[str, str]]:
    """Destination of one request, and the headers its response is given."""
    answers: list[Any] = await site.converse(
        request_headers(*headers),
        request_body(COMPLETION, end=True),
        response_headers(("content-type", "application/json"), status=status),
        response_body(b"{}", end=True),
    )
    told = [answer for answer in answers if answer.WhichOneof("response") == "response_headers"]
    return destination(answers[0]), set_headers(told[0])


@pytest.mark.parametrize("config", [FILTER, SCORER], ids=["filter", "scorer"])
async def test_a_token_leads_back_to_its_server(tmp_path: Path, config: str) -> None:
    async with Site(tmp_path, Pod(2), Pod(0), Pod(5), config=config, flags=EXPERIMENTAL) as site:
        first, told = await turn(site)
        assert first == site.key(1)
        site.pods[1].waiting = 4
        for _ in range(3):
            again, repeated = await turn(site, (TOKEN, told[TOKEN]))
            assert (again, repeated[TOKEN]) == (first, told[TOKEN])


async def test_a_session_without_its_server_moves_with_a_new_token(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(2), Pod(0), Pod(5), config=FILTER, flags=EXPERIMENTAL) as site:
        _, told = await turn(site)
        await site.keep(0, 2)
        moved, anew = await turn(site, (TOKEN, told[TOKEN]))
        assert moved == site.key(0)
        assert anew[TOKEN] != told[TOKEN]
        assert (await turn(site, (TOKEN, anew[TOKEN])))[0] == moved


async def test_a_server_that_cannot_serve_gives_no_token(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(0), Pod(0), config=FILTER, flags=EXPERIMENTAL) as site:
        assert TOKEN not in (await turn(site, status=503))[1]


async def test_the_header_names_the_session_before_the_agent_does(tmp_path: Path) -> None:
    async with Site(tmp_path, *[Pod()] * 6, config=BY_ID, flags=EXPERIMENTAL) as site:
        agent = ("x-claude-code-session-id", "agent")
        homes = {name: (await turn(site, ("x-session-id", name)))[0] for name in ("a", "b", "c", "d")}
        by_agent = (await turn(site, agent))[0]
        for name, home in homes.items():
            assert (await turn(site, ("x-session-id", name), agent))[0] == home
        assert (await turn(site, agent))[0] == by_agent
        assert TOKEN not in (await turn(site, agent))[1]
