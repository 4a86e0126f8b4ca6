"""The yardstick: the least ext_proc server one writes with grpc.aio.

It does what every picker must do and nothing else: collect the request body, parse it once, answer the
headers with a destination taken in turn, echo the bodies, answer every other message. So its cost is the
cost of the gRPC library, and a picker's cost relative to it says what its transport and its decisions cost.

Run as `python -m benchmarks.baseline_grpc_aio --endpoints IP:PORT,...`; the first line on stdout is the port;
it ends when its stdin does.
"""

import argparse
import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import grpc.aio
import msgspec
import uvloop
from envoy.config.core.v3.base_pb2 import HeaderValue, HeaderValueOption
from envoy.service.ext_proc.v3 import external_processor_pb2 as wire
from envoy.service.ext_proc.v3.external_processor_pb2_grpc import (
    ExternalProcessorServicer,
    add_ExternalProcessorServicer_to_server,
)

from benchmarks.worker import end_with_parent
from dataplane.headers import DESTINATION_ENDPOINT, LB_NAMESPACE

BODY_CHUNK_BYTES = 62_000
"""Longest body part in one answer, as pickers for this protocol use it."""

RECEIVE_LIMIT_BYTES = 16 * 1024 * 1024


class ChatRequest(msgspec.Struct):
    """The fields a picker needs; messages stay undecoded."""

    model: str
    messages: msgspec.Raw
    stream: bool = False


class Baseline(ExternalProcessorServicer):  # type: ignore[misc]  # generated code without types
    """Answers every message of every stream."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.endpoints = itertools.cycle(endpoints)
        self.decoder = msgspec.json.Decoder(ChatRequest)

    async def Process(self, request_iterator: AsyncIterator[Any], _: Any) -> AsyncIterator[Any]:
        """One HTTP exchange: the header answer waits for the whole body, as a picker's must."""
        body = bytearray()
        async for message in request_iterator:
            kind = message.WhichOneof("request")
            if kind == "request_headers":
                if message.request_headers.end_of_stream:
                    yield self.header_answer()
            elif kind == "request_body":
                body += message.request_body.body
                if message.request_body.end_of_stream:
                    for answer in self.body_answers(bytes(body)):
                        yield answer
            else:
                yield passed_through(kind, message)

    def header_answer(self) -> Any:
        """Request headers with the next destination in turn, in the header and in the metadata."""
        endpoint = next(self.endpoints)
        answer = wire.ProcessingResponse()
        option = HeaderValueOption(header=HeaderValue(key=DESTINATION_ENDPOINT, raw_value=endpoint.encode()))
        answer.request_headers.response.header_mutation.set_headers.append(option)
        answer.dynamic_metadata.get_or_create_struct(LB_NAMESPACE)[DESTINATION_ENDPOINT] = endpoint
        return answer

    def body_answers(self, body: bytes) -> Iterator[Any]:
        """Parse the body once; then the header answer and the body in parts, or 400."""
        try:
            self.decoder.decode(body)
        except msgspec.MsgspecError as error:
            refusal = wire.ProcessingResponse()
            refusal.immediate_response.status.code = 400
            refusal.immediate_response.body = str(error).encode()
            yield refusal
            return
        yield self.header_answer()
        for start in range(0, max(1, len(body)), BODY_CHUNK_BYTES):
            answer = wire.ProcessingResponse()
            part = answer.request_body.response.body_mutation.streamed_response
            part.body = body[start : start + BODY_CHUNK_BYTES]
            part.end_of_stream = start + BODY_CHUNK_BYTES >= len(body)
            yield answer


def passed_through(kind: str, message: Any) -> Any:
    """The answer that changes nothing."""
    answer = wire.ProcessingResponse()
    if kind == "response_body":
        part = answer.response_body.response.body_mutation.streamed_response
        part.body = message.response_body.body
        part.end_of_stream = message.response_body.end_of_stream
    else:
        getattr(answer, kind).SetInParent()
    return answer


async def serve(endpoints: Sequence[str]) -> None:
    """Listen on a free port, say which, and serve until stdin ends."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", RECEIVE_LIMIT_BYTES)])
    add_ExternalProcessorServicer_to_server(Baseline(endpoints), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await end_with_parent()
    await server.stop(grace=None)


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baseline_grpc_aio", description=__doc__)
    parser.add_argument("--endpoints", required=True, help="comma-separated IP:PORT")
    parser.add_argument("--uvloop", action="store_true", help="run on uvloop instead of asyncio's own loop")
    arguments = parser.parse_args(argv)
    run = uvloop.run if arguments.uvloop else asyncio.run
    run(serve(arguments.endpoints.split(",")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
