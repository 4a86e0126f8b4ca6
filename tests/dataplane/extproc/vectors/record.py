"""Records what a real Envoy sends to an ext_proc server, as `envoy_messages.json` beside this file.

Run it by hand when Envoy's version changes, and review the difference, from the root of the repository:
`python -m tests.dataplane.extproc.vectors.record`. The server behind Envoy answers with the protobuf
runtime and knows nothing of our codec.
"""

from __future__ import annotations

import asyncio
import base64
import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

from tests.dataplane.extproc.vectors.envoy import (
    LISTENERS,
    REQUESTS,
    exchange,
    running_envoy,
    running_upstream,
)
from tests.dataplane.extproc.vectors.oracle import as_read_by_runtime

RECORDING = Path(__file__).with_name("envoy_messages.json")
FULL_DUPLEX = 4


class EchoServer(grpc.GenericRpcHandler):
    """Answers every message with "go on" and keeps its bytes."""

    def __init__(self) -> None:
        self.streams: list[list[bytes]] = []

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.stream_stream_rpc_method_handler(self.process)

    async def process(self, messages: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        stream: list[bytes] = []
        self.streams.append(stream)
        config = pb.ProtocolConfiguration()
        async for message in messages:
            stream.append(message)
            request = pb.ProcessingRequest.FromString(message)
            if request.HasField("protocol_config"):
                config = request.protocol_config
            yield answer(request, config).SerializeToString()


def answer(request: pb.ProcessingRequest, config: pb.ProtocolConfiguration) -> pb.ProcessingResponse:
    """Unchanged, in the form that the body mode asks for."""
    kind = request.WhichOneof("request")
    response = pb.ProcessingResponse()
    part = getattr(response, kind)
    if kind.endswith("trailers"):
        part.SetInParent()
        return response
    part.response.SetInParent()
    mode = config.request_body_mode if kind == "request_body" else config.response_body_mode
    if kind.endswith("body") and mode == FULL_DUPLEX:
        body = getattr(request, kind)
        streamed = part.response.body_mutation.streamed_response
        streamed.body, streamed.end_of_stream = body.body, body.end_of_stream
    return response


async def record() -> None:
    """Every request through every listener."""
    recorded = {}
    echo = EchoServer()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((echo,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    with tempfile.TemporaryDirectory() as folder:
        async with running_upstream() as (_, upstream), running_envoy(Path(folder), port, upstream) as envoy:
            for name in LISTENERS:
                for what, request in REQUESTS.items():
                    echo.streams.clear()
                    await exchange(envoy.ports[name], request)
                    await asyncio.sleep(0.2)
                    (stream,) = echo.streams
                    recorded[f"{name}: {what}"] = [
                        {"message": base64.b64encode(message).decode(), "says": as_read_by_runtime(message)}
                        for message in stream
                    ]
    await server.stop(0)
    RECORDING.write_text(as_text(recorded))


def as_text(recorded: dict[str, list[dict[str, Any]]]) -> str:
    """JSON with one message on a line, so that a difference can be read."""
    streams = [
        f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(message) for message in messages) + "\n]"
        for name, messages in recorded.items()
    ]
    return "{\n" + ",\n".join(streams) + "\n}\n"


if __name__ == "__main__":
    asyncio.run(record())
