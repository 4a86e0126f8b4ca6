"""A picker seen from outside: model servers that only have metrics, and the conversation Envoy would hold.

The picker is whole and listens on free ports; it measures the servers by itself and is asked by a gRPC
client that shares no code with it. Servers have one address each (127.0.0.2 and on) and one common port, as
pods do. Whoever opens a ``Site`` closes it; nothing outlives it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import grpc.aio
from aiohttp import web
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf import struct_pb2
from prometheus_client.parser import text_string_to_metric_families

from epp.app import Picker
from epp.options import EppOptions, parse_args
from tests.support.waiting import PATIENCE_S, until

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
DESTINATION = "x-gateway-destination-endpoint"
SERVED = "x-gateway-destination-endpoint-served"
DROPPED = "x-llm-d-request-dropped-reason"

DEFAULT_PROFILE = """
plugins:
- {type: queue-scorer}
- {type: kv-cache-utilization-scorer}
- {type: prefix-cache-scorer}
- {type: lora-affinity-scorer}
schedulingProfiles:
- name: default
  plugins:
  - {pluginRef: queue-scorer, weight: 1}
  - {pluginRef: kv-cache-utilization-scorer, weight: 1}
  - {pluginRef: prefix-cache-scorer, weight: 1}
  - {pluginRef: lora-affinity-scorer, weight: 1}
"""
"""The profile of these cases unless they bring their own."""

HEAD = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n"


@dataclass
class Pod:
    """A model server as a picker sees it. ``adapters`` are the LoRA adapters that are loaded and in use."""

    waiting: int = 0
    kv: float = 0.0
    adapters: Sequence[str] = ()
    running: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    hangs: bool = False
    """Whether it takes questions about its metrics and does not answer."""

    def page(self) -> str:
        """Its metrics page, in the words of vLLM."""
        lines = [
            f'vllm:num_requests_waiting{{model_name="m"}} {self.waiting}',
            f'vllm:num_requests_running{{model_name="m"}} {self.running}',
            f'vllm:kv_cache_usage_perc{{model_name="m"}} {self.kv}',
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="20000"} 1',
        ]
        if self.adapters:
            names = ",".join(self.adapters)
            lines.append(
                f'vllm:lora_requests_info{{max_lora="4",running_lora_adapters="{names}",'
                f'waiting_lora_adapters=""}} 1700000000'
            )
        return "\n".join(lines) + "\n"


def has_sockets_at(port: int) -> bool:
    """Whether this process has one whose own port is this."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    there = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(f":{port:04X}")}
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(f"/proc/self/fd/{descriptor}") in there:
                return True
    return False


class Site:
    """A picker with a pool of servers, p0 at 127.0.0.2, p1 at 127.0.0.3 and so on."""

    def __init__(
        self,
        folder: Path,
        *pods: Pod,
        config: str = DEFAULT_PROFILE,
        flags: Sequence[str] = (),
    ) -> None:
        self.pods = list(pods)
        self._endpoints = folder / "endpoints.yaml"
        self._config = HEAD + config
        self._flags = flags
        self._runner: web.AppRunner | None = None
        self._channel: grpc.aio.Channel | None = None
        self.port = 0
        self._picker: Picker | None = None

    async def __aenter__(self) -> Self:
        try:
            return await self._start()
        except BaseException:
            await self.__aexit__()
            raise

    async def _start(self) -> Self:
        await self._serve_metrics()
        self._list(range(len(self.pods)))
        self._picker = Picker(self._options())
        await self._picker.start()
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.picker.server.port}")
        await self._measured()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._channel is not None:
            await self._channel.close()
        if self._picker is not None:
            await self._picker.stop()
        for pod in self.pods:
            pod.hangs = False
        if self._runner is not None:
            await self._runner.cleanup()
            # Connections close in turns of the loop to come; one that is left would fail another test.
            await until(lambda: not has_sockets_at(self.port))

    @property
    def picker(self) -> Picker:
        """The running picker."""
        assert self._picker is not None
        return self._picker

    def key(self, number: int) -> str:
        """``address:port`` of pod ``number``."""
        return f"127.0.0.{number + 2}:{self.port}"

    def _listed(self, number: int) -> dict[str, Any]:
        address, _, port = self.key(number).rpartition(":")
        return {
            "name": f"p{number}",
            "address": address,
            "port": port,
            "labels": dict(self.pods[number].labels),
        }

    def _list(self, numbers: Iterable[int]) -> None:
        """Put these pods into the file of endpoints, atomically."""
        new = self._endpoints.with_suffix(".new")
        new.write_text(json.dumps({"endpoints": [self._listed(number) for number in numbers]}))
        new.rename(self._endpoints)

    async def keep(self, *numbers: int) -> None:
        """Take all other pods out of the pool, and wait until the picker knows."""
        self._list(numbers)
        async with asyncio.timeout(PATIENCE_S):
            while len(self.picker.table) != len(numbers):  # noqa: ASYNC110 - the picker has no event for it
                await asyncio.sleep(0.01)

    def _options(self) -> EppOptions:
        return parse_args(
            [
                *("--host", "127.0.0.1", "--secure-serving=false", "--config-text", self._config),
                *("--grpc-port", "0", "--grpc-health-port", "0", "--metrics-port", "0"),
                *("--endpoints-file", str(self._endpoints), "--pool-name", "pool"),
                *self._flags,
            ]
        )

    async def _serve_metrics(self) -> None:
        """One server that answers at every pod's address with that pod's page."""

        async def metrics(request: web.Request) -> web.Response:
            assert request.transport is not None
            address = request.transport.get_extra_info("sockname")[0]
            pod = self.pods[int(address.rpartition(".")[2]) - 2]
            while pod.hangs:  # noqa: ASYNC110 - a plain flag is what tests flip
                await asyncio.sleep(0.02)
            return web.Response(text=pod.page())

        app = web.Application()
        app.router.add_get("/metrics", metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        self.port = _common_port(len(self.pods))
        for number in range(len(self.pods)):
            address = self.key(number).rpartition(":")[0]
            await web.TCPSite(self._runner, address, self.port).start()

    async def _measured(self) -> None:
        """Until the picker has heard of every server's load."""
        table = self.picker.table
        async with asyncio.timeout(PATIENCE_S):
            while not all(  # noqa: ASYNC110 - the picker has no event for it
                table.waiting[e.slot] == pod.waiting and table.fresh[e.slot]
                for e, pod in zip(table.all().endpoints, self.pods, strict=True)
            ):
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def asked(self, *messages: pb.ProcessingRequest) -> AsyncIterator[pb.ProcessingResponse]:
        """Send the messages and hear the first answer; the stream stays open until the block ends."""
        call = self._call()
        try:
            for message in messages:
                await call.write(message)
            yield await call.read()
        finally:
            call.cancel()

    def _call(self, messages: Iterator[pb.ProcessingRequest] | None = None) -> Any:
        assert self._channel is not None
        method = self._channel.stream_stream(
            METHOD,
            request_serializer=pb.ProcessingRequest.SerializeToString,
            response_deserializer=pb.ProcessingResponse.FromString,
        )
        return method(messages, timeout=PATIENCE_S)

    async def converse(self, *messages: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        """Send the messages, end the stream, and hear everything the picker says."""
        return [answer async for answer in self._call(iter(messages))]

    async def patiently(
        self, asked: Sequence[pb.ProcessingRequest], *answered: pb.ProcessingRequest
    ) -> list[pb.ProcessingResponse]:
        """Send the request, and what follows only when the picker has said where it goes, as Envoy does."""
        call = self._call()
        for message in asked:
            await call.write(message)
        answers = [await call.read()]
        if answers[0].WhichOneof("response") != "immediate_response":
            for message in answered:
                await call.write(message)
        await call.done_writing()
        while (answer := await call.read()) is not grpc.aio.EOF:
            answers.append(answer)
        return answers

    async def ask(self, body: Any, *headers: tuple[str, str], **hints: Any) -> list[pb.ProcessingResponse]:
        """One whole request; ``hints`` are those of ``request_body``."""
        return await self.converse(request_headers(*headers), request_body(body, end=True, **hints))

    async def served(self, body: Any, *headers: tuple[str, str], **hints: Any) -> str:
        """Destination of one request that is answered with an empty object."""
        asked = (request_headers(*headers), request_body(body, end=True, **hints))
        return destination((await self.converse(*asked, *ANSWERED))[0])

    async def picked(self, body: Any, *headers: tuple[str, str], **hints: Any) -> str:
        """Destination of one request."""
        return destination((await self.ask(body, *headers, **hints))[0])

    async def page(self, path: str) -> str:
        """A page of the metrics port."""
        url = f"http://127.0.0.1:{self.picker.admin.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()

    async def sample(self, name: str, **labels: str) -> float | None:
        """Value of the one series of this name that has at least these labels; None = there is none."""
        found = [
            sample.value
            for family in text_string_to_metric_families(await self.page("/metrics"))
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, f"{name} with {labels} is ambiguous"
        return found[0] if found else None


def _common_port(count: int) -> int:
    """A port that is free at the addresses of this many pods."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.2", 0))
            port: int = first.getsockname()[1]
        sockets = [socket.socket() for _ in range(count)]
        try:
            for number, one in enumerate(sockets):
                one.bind((f"127.0.0.{number + 2}", port))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return port


def request_headers(*headers: tuple[str, str], end: bool = False, path: str = "/v1/completions") -> Any:
    """The first message of a request, as Envoy sends it in full duplex mode."""
    pairs = [(":method", "GET" if end else "POST"), (":path", path), ("x-request-id", "r1"), *headers]
    return pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=_header_map(pairs), end_of_stream=end),
        protocol_config=pb.ProtocolConfiguration(
            request_body_mode=4,  # FULL_DUPLEX_STREAMED
            response_body_mode=4,
        ),
    )


def request_body(body: Any, *, end: bool = False, subset: Any = None, key: str = SUBSET_KEY) -> Any:
    """A chunk of a request: bytes as they are, anything else as JSON; with a subset hint if there is one."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    message = pb.ProcessingRequest(request_body=pb.HttpBody(body=raw, end_of_stream=end))
    if subset is not None:
        _put_metadata(message, SUBSET_NAMESPACE, {key: subset})
    return message


def response_headers(
    *headers: tuple[str, str], status: int = 200, served: str = "", end: bool = False
) -> Any:
    """The head of a response, with the endpoint that served it if Envoy says so."""
    pairs = [(":status", str(status)), *headers]
    message = pb.ProcessingRequest(
        response_headers=pb.HttpHeaders(headers=_header_map(pairs), end_of_stream=end)
    )
    if served:
        _put_metadata(message, "envoy.lb", {SERVED: served})
    return message


def response_body(body: bytes, *, end: bool = False) -> Any:
    """A chunk of a response."""
    return pb.ProcessingRequest(response_body=pb.HttpBody(body=body, end_of_stream=end))


def response_trailers(*headers: tuple[str, str]) -> Any:
    """The trailers of a response."""
    return pb.ProcessingRequest(response_trailers=pb.HttpTrailers(trailers=_header_map(headers)))


def _header_map(pairs: Sequence[tuple[str, str]]) -> Any:
    return base_pb2.HeaderMap(
        headers=[base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in pairs]
    )


def _put_metadata(message: Any, namespace: str, values: Mapping[str, Any]) -> None:
    fields = struct_pb2.Struct()
    fields.update(values)
    message.metadata_context.filter_metadata[namespace].CopyFrom(fields)


ANSWERED = (response_headers(("content-type", "application/json")), response_body(b"{}", end=True))
"""A whole response."""


def set_headers(answer: Any) -> dict[str, str]:
    """Headers an answer to request or response headers sets; each must be raw and set once."""
    kind = answer.WhichOneof("response")
    options = getattr(answer, kind).response.header_mutation.set_headers
    assert all(not option.header.value for option in options), "only raw values survive every proxy"
    headers = {option.header.key: option.header.raw_value.decode() for option in options}
    assert len(headers) == len(options)
    return headers


def removed_headers(answer: Any) -> set[str]:
    """Headers an answer to request or response headers removes."""
    kind = answer.WhichOneof("response")
    return set(getattr(answer, kind).response.header_mutation.remove_headers)


def destination(answer: Any) -> str:
    """Where an answer to request headers sends the request; header and metadata must say the same."""
    assert answer.WhichOneof("response") == "request_headers", answer
    chosen = set_headers(answer)[DESTINATION]
    assert dict(answer.dynamic_metadata["envoy.lb"])[DESTINATION] == chosen
    assert answer.request_headers.response.clear_route_cache
    return chosen


def refusal(answers: Sequence[Any]) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Status, error object and headers of the one answer that refuses a request."""
    (answer,) = answers
    assert answer.WhichOneof("response") == "immediate_response", answer
    immediate = answer.immediate_response
    options = immediate.headers.set_headers
    headers = {o.header.key: (o.header.raw_value or o.header.value.encode()).decode() for o in options}
    error: dict[str, Any] = json.loads(immediate.body)["error"]
    return immediate.status.code, error, headers


def streamed(answers: Sequence[Any], kind: str) -> tuple[bytes, list[bool]]:
    """Joined bytes of the body answers of a kind, and the end-of-stream flag of each."""
    parts = [
        getattr(answer, kind).response.body_mutation.streamed_response
        for answer in answers
        if answer.WhichOneof("response") == kind
    ]
    return b"".join(part.body for part in parts), [part.end_of_stream for part in parts]
