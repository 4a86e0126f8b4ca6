"""Logs stay below their cap."""

from pathlib import Path

import aiohttp

from cli.local.log_files import trim
from tests.cli.local.plans import two_pools


async def test_files_at_the_cap_are_put_aside_and_writers_go_on(tmp_path: Path):
    plan = two_pools(tmp_path)
    plan.logs.mkdir(parents=True)
    (plan.logs / "small.log").write_text("123")
    plan.access_log.write_text("12345")
    with (plan.logs / "epp.log").open("a") as writer:
        writer.write("1234")
        writer.flush()
        async with aiohttp.ClientSession() as session:
            await trim(plan, session, cap_bytes=4)
        writer.write("5")
    assert {path.name: path.read_text() for path in plan.logs.iterdir()} == {
        "small.log": "123",
        "epp.log": "5",
        "epp.log.1": "1234",
        "access.jsonl.1": "12345",
    }
