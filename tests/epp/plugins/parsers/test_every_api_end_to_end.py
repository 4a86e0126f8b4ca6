"""Each API from request to response: routed by its prompt, and cached tokens noted, as the picker does it."""

import json
from typing import Any

import pytest

from dataplane.extproc.exchange import Ending, HttpRequest, HttpResponse
from dataplane.headers import Headers
from epp.decisions import DecisionLog, DecisionRecord
from epp.director import Director
from epp.graph import load_graph
from epp.handler import PickerHandler
from epp.interfaces.handle import Handle
from epp.metrics import EppMetrics
from tests.support.clock import ManualClock
from tests.support.pool import make_table

CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: prefix-cache-scorer}]
requestHandler: {parsers: [%s]}
"""
ALL = ("openai", "anthropic", "vllmhttp", "sglanghttp", "vllmgrpc", "vertexai", "passthrough")
TEXT = "a long prompt " * 100
TOKENS = list(range(1, 400))
CHAT = {"model": "m", "messages": [{"role": "user", "content": TEXT}]}


def frame(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def openai_answer(cached: int) -> bytes:
    details = {"cached_tokens": cached}
    usage = {"prompt_tokens": 399, "completion_tokens": 1, "prompt_tokens_details": details}
    return json.dumps({"usage": usage}).encode()


ANTHROPIC = b'{"usage": {"input_tokens": 79, "cache_read_input_tokens": 320, "output_tokens": 1}}'
SGLANG = b'{"meta_info": {"id": "a", "prompt_tokens": 399, "completion_tokens": 1, "cached_tokens": 320}}'
GRPC = frame(field(2, b"\x18\x8f\x03\x20\x01\x28\xc0\x02"))
PACKED = b"".join(bytes([t]) if t < 128 else bytes([t & 0x7F | 0x80, t >> 7]) for t in TOKENS)
VERTEX = "/google.cloud.aiplatform.v1.PredictionService/RawPredict"

CASES = {
    "/v1/chat/completions": (CHAT, openai_answer(320)),
    "/v1/completions": ({"model": "m", "prompt": TEXT}, openai_answer(320)),
    "/v1/responses": ({"model": "m", "input": TEXT}, openai_answer(320)),
    "/v1/messages": (CHAT, ANTHROPIC),
    "/inference/v1/generate": ({"token_ids": TOKENS}, openai_answer(320)),
    "/generate": ({"text": TEXT}, SGLANG),
    "/vllm.grpc.engine.VllmEngine/Generate": (frame(field(2, field(2, PACKED))), GRPC),
    VERTEX: (frame(field(2, field(2, json.dumps(CHAT).encode()))), frame(field(2, openai_answer(320)))),
}


@pytest.mark.parametrize("path", CASES)
def test_the_second_request_follows_the_first(path: str):
    data, answer = CASES[path]
    table, clock = make_table(8), ManualClock()
    parsers = ", ".join(f"{{pluginRef: {name}-parser}}" for name in ALL)
    graph = load_graph(CONFIG % parsers, Handle(table, clock))
    metrics = EppMetrics(table, "pool")
    handler = PickerHandler(Director(table, graph, metrics, clock), metrics, DecisionLog(10), clock)

    def ask(body: Any, request_id: str) -> DecisionRecord:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = Headers.of([(":path", path), ("x-request-id", request_id)])
        exchange = handler.open()
        exchange.on_request(HttpRequest(headers, raw, None), lambda decision: None)
        exchange.on_response_headers(HttpResponse(Headers.of([(":status", "200")]), 200, False, None))
        for i in range(0, len(answer), 7):
            exchange.on_response_chunk(answer[i : i + 7], i + 7 >= len(answer))
        exchange.on_end(Ending.NATURAL)
        assert exchange._record is not None
        return exchange._record

    first, second = ask(data, "first"), ask(data, "second")
    assert (first.matched_blocks, first.cached_tokens) == (0, 320)
    assert second.cached_tokens == 320
    assert 0 < second.total_blocks - 1 <= second.matched_blocks
    assert first.result is not None
    assert second.result is not None
    assert second.result.endpoints == first.result.endpoints
