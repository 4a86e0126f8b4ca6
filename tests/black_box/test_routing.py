"""Where requests go, seen from outside: load, adapters, affinity, ties, split and opaque bodies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.black_box import (
    DEFAULT_PROFILE,
    Pod,
    Site,
    destination,
    removed_headers,
    request_body,
    request_headers,
    set_headers,
    streamed,
)

pytestmark = pytest.mark.integration

COMPLETION = {"model": "my-model", "prompt": "test1"}

OPAQUE = """
plugins:
- {type: passthrough-parser}
- {type: queue-scorer}
requestHandler:
  parsers:
  - pluginRef: passthrough-parser
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 1}]
"""


async def test_the_least_loaded_server_is_picked_and_the_body_passes_untouched(tmp_path: Path) -> None:
    body = b'{ "prompt" : "test1",\n "model":"my-model", "top_p": 1.0, "seed": 12345678901234567890 }'
    async with Site(tmp_path, Pod(3, 0.2), Pod(0, 0.1), Pod(10, 0.2)) as site:
        answers = await site.converse(request_headers(), request_body(body, end=True))

        assert [answer.WhichOneof("response") for answer in answers] == ["request_headers", "request_body"]
        assert destination(answers[0]) == site.key(1)
        assert streamed(answers, "request_body") == (body, [True])
        assert await site.sample("llm_d_epp_request_total", priority="0") == 1
        assert await site.sample("llm_d_epp_ready_endpoints") == 3


async def test_a_server_that_has_the_adapter_wins_over_an_equally_loaded_one(tmp_path: Path) -> None:
    pods = (Pod(0, 0.2, ["foo", "bar"]), Pod(0, 0.1, ["foo", "my-adapter"]), Pod(10, 0.2, ["foo", "bar"]))
    async with Site(tmp_path, *pods) as site:
        assert await site.picked({"model": "my-adapter", "prompt": "test2"}) == site.key(1)


async def test_nothing_is_shed_however_full_the_servers_are(tmp_path: Path) -> None:
    pods = (Pod(6, 0.2, ["my-adapter"]), Pod(0, 0.85, ["foo"]), Pod(10, 0.9, ["foo"]))
    async with Site(tmp_path, *pods) as site:
        assert await site.picked({"model": "my-adapter", "prompt": "test3"}) == site.key(0)


async def test_a_body_in_two_chunks_is_decided_on_once_and_like_a_whole_one(tmp_path: Path) -> None:
    whole = b'{"model": "my-model", "prompt": "test1"}'
    async with Site(tmp_path, Pod(3, 0.2), Pod(0, 0.1)) as site:
        chunks = (request_body(whole[:17]), request_body(whole[17:], end=True))
        answers = await site.converse(request_headers(), *chunks)

        assert destination(answers[0]) == site.key(1)
        sent, ends = streamed(answers, "request_body")
        assert sent == whole
        assert ends[-1]
        assert not any(ends[:-1])
        assert await site.sample("llm_d_epp_request_total") == 1


async def test_opaque_bodies_are_routed_by_load_alone(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(3), Pod(0), config=OPAQUE) as site:
        answers = await site.ask(b"passthrough-parser")

        assert destination(answers[0]) == site.key(1)
        assert streamed(answers, "request_body") == (b"passthrough-parser", [True])
        assert await site.sample("llm_d_epp_request_total", model_name="") == 1


async def test_a_prompt_returns_to_the_server_that_computed_it(tmp_path: Path) -> None:
    body = {"model": "my-model", "prompt": "the same long words " * 200}
    async with Site(tmp_path, Pod(), Pod(), Pod(), Pod()) as site:
        first = await site.served(body)
        assert {await site.served(body) for _ in range(10)} == {first}


async def test_equal_servers_share_a_burst_evenly(tmp_path: Path) -> None:
    async with Site(tmp_path, *(Pod() for _ in range(8))) as site:
        picks = Counter([await site.picked({"model": "m", "prompt": str(n)}) for n in range(400)])
        assert len(picks) == 8
        assert max(picks.values()) <= 1.5 * 400 / 8


async def test_requests_without_a_body_are_scheduled_like_all_others(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(3), Pod(0), Pod(9)) as site:
        answers = await site.converse(request_headers(end=True, path="/v1/models"))

        assert [answer.WhichOneof("response") for answer in answers] == ["request_headers"]
        assert destination(answers[0]) == site.key(1)


async def test_control_headers_of_a_client_neither_win_nor_pass(tmp_path: Path) -> None:
    forged = [
        ("x-gateway-destination-endpoint", "1.1.1.1:666"),
        ("x-llm-d-inference-objective", "anything"),
        ("x-gateway-inference-fairness-id", "somebody"),
        ("x-prefiller-host-port", "169.254.169.254:80"),
        ("x-encoder-hosts-ports", "169.254.169.254:80"),
        ("x-kv-cache-source-host-port", "169.254.169.254:80"),
        ("x-data-parallel-host-port", "169.254.169.254:80"),
    ]
    async with Site(tmp_path, Pod(3), Pod(0), config=DEFAULT_PROFILE) as site:
        answers = await site.ask(COMPLETION, *forged)

        assert destination(answers[0]) == site.key(1)
        assert removed_headers(answers[0]) == {name for name, _ in forged[1:]}
        assert not set_headers(answers[0]).keys() & {name for name, _ in forged[1:]}
