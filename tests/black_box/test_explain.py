"""Why a request went where it went, seen from outside: the header, the pages and the command."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cli import main as command
from tests.support.black_box import (
    ANSWERED,
    Pod,
    Site,
    destination,
    removed_headers,
    request_body,
    request_headers,
    response_headers,
    set_headers,
)

pytestmark = pytest.mark.integration

BODY = {"model": "my-model", "prompt": "test"}
EXPLAIN = "x-pointsman-explain"
ASK = (EXPLAIN, "true")
FLAGS = ("--explain-sampling", "0")


async def explain(*arguments: str) -> int:
    """Run the command beside the event loop on which the picker runs."""
    return await asyncio.to_thread(command.main, ["explain", *arguments])


async def decisions(site: Site, query: str = "") -> list[dict[str, Any]]:
    """What the debug page lists."""
    listed: list[dict[str, Any]] = json.loads(await site.page(f"/debug/decisions{query}"))["decisions"]
    return listed


async def test_a_client_that_may_ask_is_told_and_the_page_and_the_command_show_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = Pod(waiting=3, kv=0.25), Pod(waiting=1, kv=0.3), Pod(waiting=9)
    async with Site(tmp_path, *pods, flags=(*FLAGS, "--explain-header=full")) as site:
        asked = request_headers(ASK), request_body(BODY, end=True)
        answers = await site.converse(*asked, response_headers(ASK, status=200), ANSWERED[1])
        await site.picked(BODY)

        picked = destination(answers[0])
        assert EXPLAIN in removed_headers(answers[0]), "it never reaches the model server"
        (to_client,) = [a for a in answers if a.WhichOneof("response") == "response_headers"]
        line = dict(pair.split("=", 1) for pair in set_headers(to_client)[EXPLAIN].split("; "))
        assert EXPLAIN not in removed_headers(to_client)
        assert (line["id"], line["endpoint"], line["candidates"]) == ("r1", picked, "3/3")

        later, shown = await decisions(site, "/r1")
        assert (later["traced"], shown["traced"]) == ("", "asked"), "of one id all, the newest first"
        profile = shown["profiles"]["default"]
        winner = profile["candidates"][0]
        assert winner["endpoint"] == picked
        assert (winner["waiting"], winner["inflight"]) == (pods[_number(site, picked)].waiting, 0)
        assert 0 <= winner["dataAgeMs"] < 20_000
        assert f"{profile['runnerUp']['margin']:.4g}" == line["margin"]
        assert [d["requestId"] for d in await decisions(site, "?traced=true")] == ["r1"]
        assert len(await decisions(site, f"?endpoint={picked}&ending=natural")) == 1

        source = f"http://127.0.0.1:{site.picker.admin.port}"
        capsys.readouterr()
        assert await explain("r1", "--from", source) == 0
        table = capsys.readouterr().out
        assert f"sent to {picked}\n" in table
        assert f"* {picked}" in table
        assert await explain("nobody", "--from", source) == 1

        snapshot, request = tmp_path / "snapshot.json", tmp_path / "request.json"
        request.write_text(json.dumps(BODY))
        assert await explain("--from", source, "--save-snapshot", str(snapshot)) == 0
        assert capsys.readouterr().out == f"{snapshot}: 3 endpoints\n"
        config = tmp_path / "config.yaml"
        config.write_text(site.picker.options.config_text)
        files = str(request), "--config", str(config), "--snapshot", str(snapshot), "--json"
        assert await explain(*files) == 0
        offline = json.loads(capsys.readouterr().out)["decisions"][0]
        assert offline["destination"] == [picked], "on the same data the same is decided"
        assert offline["config"] == shown["config"]


async def test_by_default_the_header_does_nothing_and_is_still_removed(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), flags=FLAGS) as site:
        answers = await site.converse(request_headers(ASK), request_body(BODY, end=True), *ANSWERED)
        assert EXPLAIN in removed_headers(answers[0])
        assert [EXPLAIN in set_headers(a) for a in answers if _is_headers(a)] == [False, False]
        assert [d["traced"] for d in await decisions(site)] == [""]


async def test_a_rejected_client_is_told_the_stage(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), flags=(*FLAGS, "--explain-header=id")) as site:
        (answer,) = await site.ask(BODY, ASK, subset=["127.9.9.9:1"])
        headers = {o.header.key: o.header.raw_value for o in answer.immediate_response.headers.set_headers}
        assert answer.immediate_response.status.code == 503
        revision = json.loads(await site.page("/debug/config"))["reload"]["revision"]
        assert headers[EXPLAIN].decode() == f"id=r1; stage=candidates; status=503; config={revision}"
        (shown,) = await decisions(site, "?ending=rejected")
        assert (shown["stage"], shown["pool"]["candidates"]) == ("candidates", 0)


def _number(site: Site, key: str) -> int:
    """The pod at an address."""
    return next(number for number in range(len(site.pods)) if site.key(number) == key)


def _is_headers(answer: Any) -> bool:
    return str(answer.WhichOneof("response")).endswith("_headers")
