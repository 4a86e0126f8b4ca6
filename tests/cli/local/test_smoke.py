"""How smoke checks are run and summed up."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from cli.local.smoke import runner
from cli.local.smoke.context import Answer, CheckError, Context, chat, expect, same, until
from cli.local.smoke.requests import BODY_SIZES, refused, sized_body

JSON = {"content-type": "application/json"}
ERROR = {"message": "no", "type": "t", "param": None, "code": "c"}


async def passes(_: Context) -> str:
    return "fine"


async def fails(_: Context) -> str:
    raise CheckError("saw 1, expected 2")


async def breaks(_: Context) -> str:
    raise ValueError("surprise")


async def hangs(_: Context) -> str:
    await asyncio.sleep(3600)
    return "never"


def gateway() -> SimpleNamespace:
    """As much of a gateway as the summary needs."""
    pools = [SimpleNamespace(name="small", replicas=4)]
    plan = SimpleNamespace(url="http://127.0.0.1:1", admin_port=2, max_body_bytes=3, pools=pools)
    return SimpleNamespace(plan=plan, children={"envoy": SimpleNamespace(restarts=1)})


async def test_failed_check_does_not_keep_the_others_from_running(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "CHECKS", (fails, breaks, hangs, passes))
    monkeypatch.setattr(runner, "CHECK_TIMEOUT_S", 0.01)
    said: list[str] = []
    summary = await runner.run_checks(gateway(), said.append)
    assert (summary["result"], summary["failed"]) == ("failed", ["fails", "breaks", "hangs"])
    assert [(row["name"], row["result"], row["detail"]) for row in summary["checks"]] == [
        ("fails", "failed", "saw 1, expected 2"),
        ("breaks", "failed", "ValueError: surprise"),
        ("hangs", "failed", "TimeoutError: "),
        ("passes", "passed", "fine"),
    ]
    assert (summary["pools"], summary["restarts"], len(said)) == ({"small": 4}, {"envoy": 1}, 4)


async def test_run_without_a_failure_has_passed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "CHECKS", (passes,))
    summary = await runner.run_checks(gateway(), lambda _: None)
    assert (summary["result"], summary["failed"]) == ("passed", [])
    assert json.loads(json.dumps(summary)) == summary


def test_check_names_are_unique():
    names = [check.__name__ for check in runner.CHECKS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("size", [size for size in BODY_SIZES if 2 < size <= 70_000])
def test_sized_body_is_json_of_exactly_that_size(size: int):
    body = sized_body("llama-8b", size)
    assert len(body) == size
    assert json.loads(body) == chat(
        "llama-8b", "short", max_tokens=1, user="p" * (len(body) - len(sized_body("llama-8b", 0)))
    )


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        pytest.param(Answer(200, JSON, b"{}"), "status is 200, expected 404", id="accepted"),
        pytest.param(Answer(404, {}, b"{}"), "content-type '': b'{}'", id="no content type"),
        pytest.param(Answer(404, JSON, b'{"error": "no"}'), "no OpenAI error object", id="other shape"),
        pytest.param(
            Answer(404, JSON, json.dumps({"error": ERROR}).encode()),
            "code is 'c', expected 'd'",
            id="other code",
        ),
    ],
)
def test_refusal_must_have_status_shape_and_code(answer: Answer, complaint: str):
    with pytest.raises(CheckError) as raised:
        refused(answer, 404, "d")
    assert complaint in str(raised.value)


def test_refusal_is_described_by_its_message():
    assert refused(Answer(404, JSON, json.dumps({"error": ERROR}).encode()), 404, "c") == "404: no"


def test_expectations_say_what_was_found():
    expect(True, "not said")
    same("answer", 42, 42)
    with pytest.raises(CheckError, match="answer is 41, expected 42"):
        same("answer", 41, 42)


async def test_waiting_ends_with_what_never_came():
    async def never() -> bool:
        return False

    with pytest.raises(CheckError, match="after 0 s still not: rain"):
        await until(never, "rain", timeout_s=0)
