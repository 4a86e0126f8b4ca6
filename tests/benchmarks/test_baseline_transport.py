"""The own transport without the picker, driven by a gRPC client."""

import asyncio
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import ExternalProcessorStub

from benchmarks.baseline_transport import Turns
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.extproc.service import PROCESS_METHOD, ExternalProcessor
from dataplane.headers import DESTINATION_ENDPOINT
from tests.support.waiting import PATIENCE_S

ENDPOINTS = ["127.0.0.1:1", "127.0.0.1:2"]


@pytest.fixture
async def stub() -> AsyncIterator[ExternalProcessorStub]:
    processor = ExternalProcessor(Turns(ENDPOINTS).open)
    server = ExtProcServer(ServerOptions(host="127.0.0.1", port=0), {PROCESS_METHOD: processor})
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield ExternalProcessorStub(channel)
    await server.stop()


async def answers(stub: ExternalProcessorStub, body: bytes) -> list[wire.ProcessingResponse]:
    head = wire.ProcessingRequest()
    head.request_headers.SetInParent()
    head.protocol_config.request_body_mode = 4
    message = wire.ProcessingRequest()
    message.request_body.body = body
    message.request_body.end_of_stream = True
    async with asyncio.timeout(PATIENCE_S):
        return [answer async for answer in stub.Process(iter([head, message]))]


async def test_destinations_take_turns_and_bodies_come_back(stub):
    body = b'{"model":"m","messages":[]}'
    destinations = []
    for _ in range(3):
        head, echo = await answers(stub, body)
        (option,) = head.request_headers.response.header_mutation.set_headers
        assert option.header.key == DESTINATION_ENDPOINT
        destinations.append(option.header.raw_value.decode())
        streamed = echo.request_body.response.body_mutation.streamed_response
        assert (streamed.body, streamed.end_of_stream) == (body, True)
    assert destinations == ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1"]


async def test_body_that_is_no_chat_gets_400(stub):
    (answer,) = await answers(stub, b"{")
    assert answer.immediate_response.status.code == 400
