"""vLLM's gRPC requests, seen from outside: routed by what their frame says, the frame itself untouched."""

from __future__ import annotations

from pathlib import Path

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
    set_headers,
    streamed,
)
from tests.support.vllm_messages import EMBED, GENERATE, encoded

pytestmark = pytest.mark.integration

CONFIG = """
plugins:
- {type: vllmgrpc-parser}
- {type: queue-scorer}
requestHandler:
  parsers:
  - pluginRef: vllmgrpc-parser
schedulingProfiles:
- name: default
  plugins: [{pluginRef: queue-scorer, weight: 1}]
"""


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (GENERATE, encoded("GenerateRequest", text="hello")),
        (GENERATE, encoded("GenerateRequest", text="hello", stream=True)),
        (EMBED, encoded("GenerateRequest", tokenized={"input_ids": [1, 2, 3]})),
    ],
    ids=["generate", "streaming generate", "embed"],
)
@pytest.mark.parametrize("cut", [None, 3, 9], ids=["whole", "cut in the prefix", "cut in the message"])
async def test_a_frame_is_routed_and_stays_as_it_is(
    tmp_path: Path, path: str, message: bytes, cut: int | None
) -> None:
    pieces = [message] if cut is None else [message[:cut], message[cut:]]
    bodies = [request_body(piece, end=at == len(pieces)) for at, piece in enumerate(pieces, 1)]
    async with Site(tmp_path, Pod(3), Pod(0), config=CONFIG) as site:
        head = request_headers(("content-type", "application/grpc"), ("te", "trailers"), path=path)
        answers = await site.converse(head, *bodies)

        assert destination(answers[0]) == site.key(1)
        assert ":path" not in set_headers(answers[0])
        assert streamed(answers, "request_body")[0] == message


async def test_the_usage_of_a_grpc_stream_counts_and_its_trailers_pass(tmp_path: Path) -> None:
    done = {"finish_reason": "stop", "prompt_tokens": 7, "completion_tokens": 2}
    async with Site(tmp_path, Pod(), config=CONFIG) as site:
        answers = await site.converse(
            request_headers(("content-type", "application/grpc"), path=GENERATE),
            request_body(encoded("GenerateRequest", text="hello", stream=True), end=True),
            response_headers(("content-type", "application/grpc")),
            response_body(encoded("GenerateResponse", complete=done)),
            response_trailers(("grpc-status", "0")),
        )
        assert answers[-1].WhichOneof("response") == "response_trailers"
        assert await site.sample("llm_d_epp_request_input_tokens_sum") == 7
        assert await site.sample("llm_d_epp_request_output_tokens_sum") == 2
