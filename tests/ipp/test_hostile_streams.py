"""A payload processor asked over gRPC by a client that shares no code with it, and keeps no rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import grpc.aio
import pytest
import pytest_asyncio
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from ipp.app import Processor
from ipp.options import parse_args

pytestmark = pytest.mark.asyncio(loop_scope="module")

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
FLAGS = ("--host=127.0.0.1", "--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0")
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: PayloadProcessorConfig
plugins: [{type: guardrails}]
profiles:
- name: default
  plugins: {request: [{pluginRef: guardrails}], response: [{pluginRef: guardrails}]}
"""
POLICY = """
apiVersion: pointsman.dev/v1
kind: GuardrailPolicy
metadata: {name: house}
spec:
  rules:
  - {name: words, type: keywords, stages: [request, response, stream], parameters: {words: [forbidden]}}
"""
BODY = b'{"model":"m","messages":[{"role":"user","content":"forbidden"}]}'
FULL, STREAMED, NONE = 4, 1, 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processor]:
    folder: Path = tmp_path_factory.mktemp("streams")
    policies = folder / "policy.yaml"
    policies.write_text(POLICY)
    flags = [*FLAGS, "--secure-serving=false", f"--config-text={CONFIG}", f"--policies-file={policies}"]
    made = Processor(parse_args(flags))
    await made.start()
    try:
        yield made
        async with asyncio.timeout(20):
            while made.processor.inflight:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)
        assert made.processor.budget.used_bytes == 0
        assert made.processor.defects == 0
    finally:
        await made.stop()


def head(*, end: bool = False, request: int = FULL, response: int = FULL) -> bytes:
    headers = [
        base_pb2.HeaderValue(key=":method", raw_value=b"POST"),
        base_pb2.HeaderValue(key=":path", raw_value=b"/v1/chat/completions"),
    ]
    message = pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=base_pb2.HeaderMap(headers=headers), end_of_stream=end),
        protocol_config=pb.ProtocolConfiguration(request_body_mode=request, response_body_mode=response),
    )
    return bytes(message.SerializeToString())


def body(data: bytes, *, end: bool = False) -> bytes:
    chunk = pb.HttpBody(body=data, end_of_stream=end)
    return bytes(pb.ProcessingRequest(request_body=chunk).SerializeToString())


def trailers() -> bytes:
    return bytes(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()).SerializeToString())


async def ask(processor: Processor, *messages: bytes) -> list[pb.ProcessingResponse]:
    """What is answered until there is a decision, or the stream fails."""
    found: list[pb.ProcessingResponse] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{processor.server.port}") as channel:
        call = channel.stream_stream(METHOD)()
        for message in messages:
            await call.write(message)
        async with asyncio.timeout(20):
            raw = await call.read()
        if raw is not grpc.aio.EOF:
            found.append(pb.ProcessingResponse.FromString(raw))
        call.cancel()
    return found


def refused(found: list[pb.ProcessingResponse]) -> tuple[int, str]:
    (answer,) = found
    reply = answer.immediate_response
    return reply.status.code, json.loads(reply.body)["error"]["code"]


STREAMS = {
    "whole": [head(), body(BODY, end=True)],
    "byte by byte": [head(), *(body(BODY[at : at + 1]) for at in range(len(BODY))), body(b"", end=True)],
    "ended twice": [head(), body(BODY, end=True), body(b"", end=True)],
    "ended by trailers": [head(), body(BODY), trailers()],
    "empty chunks in between": [head(), body(b""), body(BODY), body(b""), trailers()],
}


@pytest.mark.parametrize("messages", STREAMS.values(), ids=STREAMS)
async def test_what_is_blocked_is_refused_however_it_comes(
    processor: Processor, messages: list[bytes]
) -> None:
    assert refused(await ask(processor, *messages)) == (400, "guardrail_keywords")


@pytest.mark.parametrize("mode", [NONE, STREAMED])
async def test_a_body_that_comes_too_late_is_refused(processor: Processor, mode: int) -> None:
    assert refused(await ask(processor, head(request=mode))) == (500, "guardrail_unreadable")


async def test_a_request_without_a_body_passes_in_any_mode(processor: Processor) -> None:
    for mode in (FULL, NONE, STREAMED):
        (answer,) = await ask(processor, head(end=True, request=mode))
        assert answer.WhichOneof("response") == "request_headers"


BROKEN = {
    "no message": [b"\xff\xff\xff"],
    "an empty message": [b""],
    "a body first": [body(BODY)],
    "trailers first": [trailers()],
    "two heads": [head(), head()],
    "two trailers": [head(), body(BODY), trailers(), trailers()],
}


@pytest.mark.parametrize("messages", BROKEN.values(), ids=BROKEN)
async def test_a_stream_that_breaks_the_rules_fails_or_is_refused(
    processor: Processor, messages: list[bytes]
) -> None:
    try:
        assert refused(await ask(processor, *messages)) == (400, "guardrail_keywords")
    except grpc.aio.AioRpcError as error:
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT  # noqa: PT017 - or it is refused


async def test_clients_that_leave_leave_nothing_behind(processor: Processor) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{processor.server.port}") as channel:
        calls = [channel.stream_stream(METHOD)() for _ in range(50)]
        for call in calls:
            await call.write(head())
            await call.write(body(b'{"model":"m","prompt":"' + b"x" * 100_000))
        for call in calls:
            call.cancel()
    assert refused(await ask(processor, head(), body(BODY, end=True))) == (400, "guardrail_keywords")
