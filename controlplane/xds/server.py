"""The discovery service: gRPC streams in, state-of-the-world answers out.

Each stream has one reader, which takes in requests, and one writer, which sends what is due; both only look
at the stream's ``Subscriptions``. Streams, requests and what is sent at once are capped. When the process is
told to end, streams end in order and their workers come back to whoever is there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import grpc
import grpc.aio
from django.db import DatabaseError

from controlplane.core.roles import Actor
from controlplane.core.tokens import NODE_ID
from controlplane.xds.admission import refusal
from controlplane.xds.certificates import NAME, Certified, ServerFiles, certified
from controlplane.xds.hub import Hub, Session
from controlplane.xds.nodes import kind_of
from controlplane.xds.subscriptions import ProtocolError
from dataplane.addresses import host_port
from dataplane.errors import ConfigError
from dataplane.xds.codec import decode_request, encode_response
from dataplane.xds.messages import ADS_METHOD, Node, Request, Response

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 4 << 20
MAX_STREAMS: Final = 10_000
SENT_AT_ONCE: Final = 64
"""Responses being encoded and written at one moment."""
WRITE_S: Final = 10.0
"""How long a worker may take to read one response: it holds one of the places."""
DRAIN_S: Final = 5.0
FIRST_REQUEST_S: Final = 30.0
"""How long a stream may stay silent at first."""

_BEARER: Final = "bearer "

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.so_reuseport", 0),
)
Context = Any
"""``grpc.aio.ServicerContext`` of requests and responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XdsOptions:
    """Where and how to listen."""

    host: str = "127.0.0.1"
    port: int = 0
    cert_file: str = ""
    key_file: str = ""
    """Both empty: no TLS."""
    client_ca_file: str = ""
    """Only clients with a certificate of these authorities are served."""
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None
    """None = no metrics and readiness are served."""


class XdsServer:
    """Owns the port, the hub and all streams."""

    def __init__(self, options: XdsOptions) -> None:
        self._options = options
        self.hub = Hub()
        self._server = grpc.aio.server(options=_OPTIONS)
        self._sending = asyncio.Semaphore(SENT_AT_ONCE)
        self._streams = 0
        self._loop: asyncio.Task[None] | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen. ``ConfigError`` when the port or a file cannot be had."""
        handler = grpc.stream_stream_rpc_method_handler(
            self._stream, request_deserializer=decode_request, response_serializer=self._encoded
        )
        service, _, method = ADS_METHOD.removeprefix("/").partition("/")
        generic = grpc.method_handlers_generic_handler(service, {method: handler})
        self._server.add_generic_rpc_handlers((generic,))
        options = self._options
        address = host_port(options.host, options.port)
        files = ServerFiles(options.cert_file, options.key_file, options.client_ca_file)
        try:
            self.port = (
                self._server.add_secure_port(address, files.credentials())
                if options.cert_file
                else self._server.add_insecure_port(address)
            )
        except RuntimeError as error:
            raise ConfigError(f"cannot listen on {address}: {error}", path="--port") from None
        await self._server.start()
        self._loop = asyncio.get_running_loop().create_task(self.hub.run(), name="xds-hub")

    async def stop(self) -> None:
        """End all streams in order."""
        for session in self.hub.sessions:
            session.end("the server ends")
        await self._server.stop(DRAIN_S)
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self.hub.stop()

    async def _stream(self, requests: AsyncIterator[Request], context: Context) -> None:
        if self._streams >= MAX_STREAMS:
            await self._refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} streams are open")
        self._streams += 1
        try:
            await self._converse(context)
        except DatabaseError as error:
            log.warning("a stream cannot begin: the database refuses: %s", error)
            await self._refuse(context, grpc.StatusCode.UNAVAILABLE, "the database cannot be reached")
        finally:
            self._streams -= 1

    async def _converse(self, context: Context) -> None:
        token, actor, shown = await self._recognised(context)
        await context.send_initial_metadata(())
        try:
            first = await asyncio.wait_for(context.read(), FIRST_REQUEST_S)
        except TimeoutError:
            await self._refuse(context, grpc.StatusCode.DEADLINE_EXCEEDED, "nothing was asked for")
        if not isinstance(first, Request):
            return
        node = first.node or Node()
        if not (NODE_ID.fullmatch(node.id) and NAME.fullmatch(node.cluster)):
            await self._refuse(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                "node.id must be a name of letters, digits and . _ : -, node.cluster a pool or gateway",
            )
        kind = kind_of(first.type_url)
        why = refusal(actor, node, kind, by="token" if token else "certificate")
        if shown is not None:
            why = why or refusal(shown.actor, node, kind, by="certificate")
        if why:
            log.warning("a stream of %s is refused: %s", node.id, why)
            await self._refuse(context, grpc.StatusCode.PERMISSION_DENIED, why)
        session = Session(node, token, actor, kind, shown)
        try:
            await self.hub.join(session)
            self.hub.metrics.began(session.kind)
            await self._serve(session, first, context)
        finally:
            self.hub.leave(session)

    async def _recognised(self, context: Context) -> tuple[str, Actor, Certified | None]:
        """The token, who that is, and who the certificate says that is. A certificate that says it makes a
        token needless; where there are both, both have to allow what is asked for.
        """
        shown = None
        try:
            pem = self._certificate(context)
            shown = None if pem is None else certified(pem)
        except ConfigError as error:
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, str(error))
        token = _token(context)
        if token is None and shown is not None:
            return "", shown.actor, shown
        actor = None if token is None else await self.hub.recognise(token)
        if token is None or actor is None:
            await self._refuse(
                context,
                grpc.StatusCode.UNAUTHENTICATED,
                "send authorization: Bearer with the token of a worker; "
                "'pointsman controlplane user NAME --role worker' and 'token' make one",
            )
        return token, actor, shown

    def _certificate(self, context: Context) -> bytes | None:
        """The client's, if it was asked for one."""
        found = context.auth_context().get("x509_pem_cert") if self._options.client_ca_file else None
        return bytes(found[0]) if found else None

    async def _serve(self, session: Session, first: Request, context: Context) -> None:
        reader = asyncio.create_task(self._read(session, first, context))
        try:
            while not session.ended:
                await session.wake.wait()
                session.wake.clear()
                # A stream that has ended meanwhile is told what was due, if it still listens.
                sent = 0
                for snapshot in self.hub.snapshots(session):
                    for response in session.subscriptions.due(snapshot):
                        async with self._sending:
                            await asyncio.wait_for(context.write(response), WRITE_S)
                        sent += 1
                self._note_delay(session, sent)
        except TimeoutError:
            session.end("what was sent is not read")
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
        if session.ended != _CLOSED:
            self.hub.metrics.cut(session.kind)
            await _abort(context, grpc.StatusCode.UNAVAILABLE, session.ended)

    def _note_delay(self, session: Session, sent: int) -> None:
        """Count how long the first response for a change took; what is not sent was not for this stream."""
        since = session.behind_since
        if since is None:
            return
        if sent:
            self.hub.metrics.reached(time.monotonic() - since)
        if sent or not session.subscriptions.is_waiting:
            session.behind_since = None

    def _encoded(self, response: Response) -> bytes:
        data = encode_response(response)
        self.hub.metrics.pushed(response.type_url, len(data), len(response.resources))
        return data

    async def _refuse(self, context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
        """End a stream that has not begun."""
        self.hub.metrics.refused(code.name)
        await _abort(context, code, why)

    async def _read(self, session: Session, first: Request, context: Context) -> None:
        """Take in requests until the worker has no more to say."""
        request: Any = first
        why = _CLOSED
        try:
            while isinstance(request, Request):
                answer = session.subscriptions.hear(request)
                self.hub.heard(session)
                if answer is not None:
                    self.hub.answered(session, answer)
                session.wake.set()
                request = await context.read()
        except ProtocolError as error:
            why = str(error)
        finally:
            session.end(session.ended or why)


_CLOSED: Final = "the worker has closed the stream"


def _token(context: Context) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == "authorization" and isinstance(value, str) and value[: len(_BEARER)].lower() == _BEARER:
            return value[len(_BEARER) :].strip()
    return None


async def _abort(context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
    await context.abort(code, why)
    raise AssertionError("abort raises")
