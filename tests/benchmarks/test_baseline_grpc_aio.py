"""The grpc.aio yardstick, driven over gRPC."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import (
    ExternalProcessorStub,
    add_ExternalProcessorServicer_to_server,
)

from benchmarks.baseline_grpc_aio import BODY_CHUNK_BYTES, Baseline
from dataplane.headers import DESTINATION_ENDPOINT, LB_NAMESPACE

ENDPOINTS = ["127.0.0.1:1", "127.0.0.1:2"]


@pytest.fixture
async def stub() -> AsyncIterator[ExternalProcessorStub]:
    server = grpc.aio.server()
    add_ExternalProcessorServicer_to_server(Baseline(ENDPOINTS), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield ExternalProcessorStub(channel)
    await server.stop(grace=None)


def message(kind: str, **fields: object) -> wire.ProcessingRequest:
    request = wire.ProcessingRequest()
    part = getattr(request, kind)
    part.SetInParent()
    for name, value in fields.items():
        setattr(part, name, value)
    return request


async def exchange(stub, *requests) -> list[wire.ProcessingResponse]:
    return [answer async for answer in stub.Process(iter(requests))]


def destination(answer: wire.ProcessingResponse) -> str:
    (option,) = answer.request_headers.response.header_mutation.set_headers
    assert option.header.key == DESTINATION_ENDPOINT
    in_metadata = answer.dynamic_metadata[LB_NAMESPACE][DESTINATION_ENDPOINT]
    assert option.header.raw_value.decode() == in_metadata
    return in_metadata


async def test_full_duplex_exchange_answers_headers_first_and_echoes(stub):
    body = b'{"model":"m","messages":[]}'
    answers = await exchange(
        stub,
        message("request_headers"),
        message("request_body", body=body[:5]),
        message("request_body", body=body[5:]),
        message("request_body", end_of_stream=True),
        message("response_headers"),
        message("response_body", body=b"data: x\n\n"),
        message("response_body", end_of_stream=True),
        message("response_trailers"),
    )
    kinds = [answer.WhichOneof("response") for answer in answers]
    assert kinds == ["request_headers", "request_body", "response_headers"] + ["response_body"] * 2 + [
        "response_trailers"
    ]
    assert destination(answers[0]) == "127.0.0.1:1"
    streamed = answers[1].request_body.response.body_mutation.streamed_response
    assert (streamed.body, streamed.end_of_stream) == (body, True)
    chunk = answers[3].response_body.response.body_mutation.streamed_response
    assert (chunk.body, chunk.end_of_stream) == (b"data: x\n\n", False)
    end = answers[4].response_body.response.body_mutation.streamed_response
    assert (end.body, end.end_of_stream) == (b"", True)


async def test_destinations_take_turns(stub):
    answers = [await exchange(stub, message("request_headers", end_of_stream=True)) for _ in range(3)]
    assert [destination(answer) for (answer,) in answers] == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"]


async def test_large_body_comes_back_in_parts(stub):
    body = b'{"model":"m","messages":["%s"]}' % (b"x" * 2 * BODY_CHUNK_BYTES)
    _, *answers = await exchange(
        stub, message("request_headers"), message("request_body", body=body, end_of_stream=True)
    )
    parts = [answer.request_body.response.body_mutation.streamed_response for answer in answers]
    assert b"".join(part.body for part in parts) == body
    assert [(len(part.body), part.end_of_stream) for part in parts] == [
        (BODY_CHUNK_BYTES, False),
        (BODY_CHUNK_BYTES, False),
        (len(body) - 2 * BODY_CHUNK_BYTES, True),
    ]


async def test_body_that_is_no_chat_gets_400(stub):
    (answer,) = await exchange(
        stub, message("request_headers"), message("request_body", body=b"{", end_of_stream=True)
    )
    assert answer.immediate_response.status.code == 400
