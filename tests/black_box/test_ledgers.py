"""What is in flight, seen from outside: every way of asking books and releases in the same ledger, once."""

from __future__ import annotations

from contextlib import AsyncExitStack
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
    response_trailers,
)
from tests.support.vllm_messages import GENERATE, encoded
from tests.support.waiting import until

pytestmark = pytest.mark.integration

MEASURED = """
- {type: metrics-data-source}
- {type: core-metrics-extractor}
dataLayer:
  sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]
"""
"""The servers are asked for their load, although nobody decides by it."""
PARSERS = ("openai", "anthropic", "vllmhttp", "vllmgrpc", "sglanghttp", "passthrough")
CONFIG = "\n".join(
    (
        "plugins:",
        "- {type: active-request-scorer}",
        "- {type: token-load-scorer}",
        *(f"- {{type: {name}-parser}}" for name in PARSERS),
        MEASURED,
        "requestHandler:",
        "  parsers:",
        *(f"  - pluginRef: {name}-parser" for name in PARSERS),
    )
)
CHAT = {"model": "m", "messages": [{"role": "user", "content": "four byte words in a row"}]}
JSON, SSE = ("content-type", "application/json"), ("content-type", "text/event-stream")
GRPC = ("content-type", "application/grpc")
EVENTS = b'data: {"usage":{"prompt_tokens":7,"completion_tokens":2}}\n\ndata: [DONE]\n\n'

PATHS: dict[str, tuple[str, Any, bool]] = {
    "completion": ("/v1/completions", {"model": "m", "prompt": "four byte words"}, True),
    "token ids": ("/v1/completions", {"model": "m", "prompt": [1, 2, 3, 4]}, True),
    "batch": ("/v1/completions", {"model": "m", "prompt": ["one text", "another"]}, True),
    "chat": ("/v1/chat/completions", CHAT, True),
    "chat stream": ("/v1/chat/completions", {**CHAT, "stream": True}, True),
    "responses": ("/v1/responses", {"model": "m", "input": "four byte words"}, True),
    "embeddings": ("/v1/embeddings", {"model": "m", "input": "four byte words"}, True),
    "messages": ("/v1/messages", {**CHAT, "max_tokens": 5}, True),
    "count of tokens": ("/v1/messages/count_tokens", CHAT, False),
    "vLLM generate": ("/inference/v1/generate", {"token_ids": [1, 2, 3]}, True),
    "SGLang generate": ("/generate", {"text": "four byte words"}, True),
    "gRPC": (f"/{GENERATE.lstrip('/')}", encoded("GenerateRequest", text="hello"), True),
    "opaque": ("/anything", b"\x00\x01", False),
    "no body": ("/v1/models", None, False),
}
"""Path, body, and whether the prompt's tokens are known."""

ENDINGS: dict[str, tuple[Any, ...]] = {
    "a document": (response_headers(JSON), response_body(b"{}", end=True)),
    "a document in pieces": (response_headers(JSON), response_body(b"{"), response_body(b"}", end=True)),
    "events": (response_headers(SSE), response_body(EVENTS), response_body(b"", end=True)),
    "trailers": (response_headers(GRPC), response_body(b"frame"), response_trailers(("grpc-status", "0"))),
    "an error": (response_headers(JSON, status=500), response_body(b"{}", end=True)),
    "headers alone": (response_headers(status=204, end=True),),
    "no response": (),
}


def asking(path: str, body: Any) -> tuple[Any, ...]:
    """The messages of one request."""
    if body is None:
        return (request_headers(end=True, path=path),)
    return request_headers(path=path), request_body(body, end=True)


@pytest.mark.parametrize("kind", PATHS)
async def test_every_path_books_what_it_releases_however_it_ends(tmp_path: Path, kind: str) -> None:
    path, body, has_tokens = PATHS[kind]
    async with Site(tmp_path, Pod(), Pod(), config=CONFIG) as site:
        table = site.picker.table
        for name, ending in ENDINGS.items():
            async with site.asked(*asking(path, body)) as answer:
                assert destination(answer) in {site.key(0), site.key(1)}, name
                assert table.inflight.sum() == 1, name
                assert (table.inflight_tokens.sum() > 0) == has_tokens, name
            await until(lambda: not table.inflight.any())
            assert not table.inflight_tokens.any(), name
            assert table.unseen.min() >= 0, name

            await site.converse(*asking(path, body), *ending)
            await until(lambda: not table.inflight.any())
            assert not table.inflight_tokens.any(), name
        assert await site.sample("llm_d_epp_request_running", priority="0") == 0


async def test_paths_share_the_ledger_that_decides(tmp_path: Path) -> None:
    async with (
        Site(tmp_path, Pod(), Pod(), config="plugins:\n- {type: active-request-scorer}" + MEASURED) as site,
        AsyncExitStack() as running,
    ):
        served = []
        for path, body in [("/v1/models", None), *((path, body) for path, body, _ in PATHS.values())][:6]:
            answer = await running.enter_async_context(site.asked(*asking(path, body)))
            served.append(destination(answer))
        assert served.count(site.key(0)) == served.count(site.key(1)) == 3
        assert len({tuple(sorted(served[i : i + 2])) for i in (0, 2, 4)}) == 1, "they take turns"


async def test_the_ledger_of_a_server_that_flaps_while_requests_run_ends_at_zero(tmp_path: Path) -> None:
    async with Site(tmp_path, Pod(), Pod(), config=CONFIG) as site:
        table = site.picker.table
        only = [site.key(0)]
        before, after = AsyncExitStack(), AsyncExitStack()
        async with after:
            async with before:
                for _ in range(5):
                    asked = (request_headers(), request_body(PATHS["completion"][1], end=True, subset=only))
                    await before.enter_async_context(site.asked(*asked))
                assert table.inflight.sum() == 5
                await site.keep(1)
                assert table.inflight.sum() == 0
                await site.keep(0, 1)
                for _ in range(2):
                    asked = (request_headers(), request_body(PATHS["completion"][1], end=True, subset=only))
                    await after.enter_async_context(site.asked(*asked))
                endpoint = table.at(site.key(0))
                assert endpoint is not None
                assert table.inflight[endpoint.slot] == 2
                tokens = table.inflight_tokens[endpoint.slot]
                assert tokens > 0
            await until(lambda: site.picker.processor.inflight == 2)
            assert table.inflight[endpoint.slot] == 2, "the first five were the old server's"
            assert table.inflight_tokens[endpoint.slot] == tokens
        await until(lambda: site.picker.processor.inflight == 0)
        assert not table.inflight.any()
        assert not table.inflight_tokens.any()
        assert await site.sample("llm_d_epp_inflight_requests", endpoint_name="p0") in (0, None)
