"""Which parsers can have another model asked for, how, and where they find it in responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dataplane.errors import BadRequestError
from dataplane.headers import Headers
from epp.interfaces.request import ParsedBody
from epp.interfaces.request_control import ModelNameRewriter
from epp.plugins.model_rewriting import with_model
from epp.plugins.parsers.anthropic import AnthropicParser
from epp.plugins.parsers.openai import OpenAIParser
from epp.plugins.parsers.passthrough import PassthroughParser
from epp.plugins.parsers.sglang_http import SglangHttpParser
from epp.plugins.parsers.vertex_ai import VertexAiParser
from epp.plugins.parsers.vllm_grpc import VllmGrpcParser
from epp.plugins.parsers.vllm_http import VllmHttpParser
from tests.support.pool import make_plugin

VECTORS = json.loads((Path(__file__).resolve().parents[2] / "vectors/model_responses.json").read_text())
CHAT = '"messages":[{"role":"user","content":"\\"model\\":\\"a\\""}]'
GENERATE = "/inference/v1/generate"


def renamed(kind: type[Any], path: str, body: str) -> str:
    parser = make_plugin(kind)
    raw = body.encode()
    changed: bytes = parser.rename_model(raw, parser.parse(Headers([]), path, raw), "t")
    return changed.decode()


def restored(kind: type[Any], body: str, *, streaming: bool = False) -> str:
    transform = make_plugin(kind).model_restorer(streaming, "t", "a")
    return str(transform.feed(body.encode(), True).decode())


@pytest.mark.parametrize(
    ("kind", "can"),
    [
        (OpenAIParser, True),
        (AnthropicParser, True),
        (VllmHttpParser, True),
        (SglangHttpParser, True),
        (VertexAiParser, False),
        (VllmGrpcParser, False),
        (PassthroughParser, False),
    ],
)
def test_parsers_of_json_bodies_can_rewrite_names_and_others_say_that_they_cannot(kind: type[Any], can: bool):
    assert isinstance(make_plugin(kind), ModelNameRewriter) is can


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (OpenAIParser, "/v1/chat/completions", '{ %s, "n":1.0,CHAT}'),
        (OpenAIParser, "/v1/completions", '{"prompt":"a", %s }'),
        (OpenAIParser, "/v1/embeddings", '{%s,"input":"a"}'),
        (OpenAIParser, "/v1/responses", '{%s,"input":"a"}'),
        (OpenAIParser, "/v1/images/generations", '{%s,"prompt":"a"}'),
        (AnthropicParser, "/v1/messages", '{"max_tokens":12,%s,CHAT}'),
        (AnthropicParser, "/v1/messages/count_tokens", "{%s,CHAT}"),
        (VllmHttpParser, GENERATE, '{"token_ids":[1,2],%s}'),
        (SglangHttpParser, "/generate", '{"text":"a",%s,"lora_path":"x"}'),
    ],
)
def test_only_the_model_changes(kind: type[Any], path: str, body: str):
    body = body.replace("CHAT", CHAT)
    assert renamed(kind, path, body % '"model" : "a"') == body % '"model" : "t"'


def test_model_is_supplied_where_there_is_none():
    assert renamed(OpenAIParser, "/v1/completions", '{"prompt":"a"}') == '{"model":"t","prompt":"a"}'
    assert (
        renamed(OpenAIParser, "/v1/completions", '{"prompt":"a","model":null}')
        == '{"prompt":"a","model":"t"}'
    )
    assert renamed(VllmHttpParser, GENERATE, '{"token_ids":[1]}') == '{"model":"t","token_ids":[1]}'


def test_adapter_of_sglang_is_replaced_where_it_is_the_model():
    assert (
        renamed(SglangHttpParser, "/generate", '{"text":"a","lora_path":"x"}')
        == '{"text":"a","lora_path":"t"}'
    )


def test_body_that_has_no_place_for_a_model_is_refused():
    with pytest.raises(
        BadRequestError, match=r"the model cannot be replaced: not a JSON object \(offset 0\)"
    ):
        with_model(b"[]", ParsedBody(), "t")


def test_openai_responses_name_the_model_at_the_top_and_in_the_response_of_an_event():
    answer = {"object": "response", "model": "t", "output": [{"model": "t"}], "message": {"model": "t"}}
    assert json.loads(restored(OpenAIParser, json.dumps(answer))) == {**answer, "model": "a"}
    event = {"type": "response.created", "response": {"model": "t", "text": "t"}}
    stream = f"event: response.created\ndata: {json.dumps(event)}\n\n"
    assert restored(OpenAIParser, stream, streaming=True) == stream.replace('"model": "t"', '"model": "a"')


def test_anthropic_streams_name_the_model_in_the_message():
    event = {"type": "message_start", "message": {"model": "t", "content": [{"model": "t"}]}}
    stream = f"event: message_start\ndata: {json.dumps(event)}\n\n"
    assert restored(AnthropicParser, stream, streaming=True) == stream.replace(
        '"model": "t"', '"model": "a"', 1
    )
    assert restored(AnthropicParser, '{"model":"t","response":{"model":"t"}}') == (
        '{"model":"a","response":{"model":"t"}}'
    )


def test_vllm_names_the_model_at_the_top():
    assert restored(VllmHttpParser, '{"model":"t","choices":[{"model":"t"}]}') == (
        '{"model":"a","choices":[{"model":"t"}]}'
    )


def test_responses_of_sglang_name_no_model():
    assert make_plugin(SglangHttpParser).model_restorer(False, "t", "a") is None


@pytest.mark.parametrize("vector", VECTORS["vectors"], ids=lambda vector: vector["name"])
def test_responses_as_servers_write_them_name_the_requested_model_wherever_they_are_cut(
    vector: dict[str, Any],
):
    """The recorded texts have a mark where the served model is to be replaced, and its name elsewhere."""
    target, alias = VECTORS["target"], "my alias"
    body, expected = (vector["response"].replace(VECTORS["mark"], name).encode() for name in (target, alias))
    parser = make_plugin({"openai": OpenAIParser, "anthropic": AnthropicParser}[vector["parser"]])
    for at in range(len(body) + 1):
        transform = parser.model_restorer(vector["streaming"], target, alias)
        assert transform.feed(body[:at], False) + transform.feed(body[at:], True) == expected
