"""ADS streams over gRPC: how to reach a control plane, and how to prove to it who one is.

The only module of the data plane that loads grpc, and loaded only by a process that is given a control plane.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Final, Self

# grpc reads this once, when it is loaded. Its handlers around a fork start its threads again in the child of
# a process that has a stream open, where they can crash before the child has become the other program. No
# process that loads grpc goes on in Python after a fork, so nobody needs them.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc
import grpc.aio

from dataplane.addresses import split_host_port
from dataplane.aside import aside
from dataplane.errors import ConfigError
from dataplane.files import read_regular_file
from dataplane.xds.codec import decode_response, encode_request
from dataplane.xds.messages import ADS_METHOD, Request, Response

log = logging.getLogger(__name__)

MAX_RESPONSE_BYTES: Final = 64 << 20
MAX_PEM_BYTES: Final = 1 << 20
MAX_TOKEN_BYTES: Final = 4096
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000

_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_RESPONSE_BYTES),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    # Who calls reconnects at times of his own, so the channel has no reason to remember failures for long.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
)


class StreamError(Exception):
    """The control plane cannot be reached, refuses, or has gone; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """Where the control plane is, and what proves the one to the other. Files are read for every stream."""

    target: str
    """``host:port``."""
    token_file: str = ""
    ca_file: str = ""
    """Authorities of its certificate, PEM; empty = no TLS."""
    cert_file: str = ""
    key_file: str = ""
    """A certificate of our own, and its key; empty = none."""

    def check(self) -> None:
        """``ConfigError`` when the address or one of the files is no good. Blocks."""
        try:
            split_host_port(self.target)
        except ValueError as error:
            raise ConfigError(f"{self.target!r} is not host:port ({error})") from None
        self.credentials()
        self.metadata()

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Of the channel; None = no TLS."""
        if not self.ca_file:
            return None
        key = _pem(self.key_file) if self.key_file else None
        chain = _pem(self.cert_file) if self.cert_file else None
        return grpc.ssl_channel_credentials(_pem(self.ca_file), key, chain)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Of the call."""
        if not self.token_file:
            return ()
        data = read_regular_file(self.token_file, MAX_TOKEN_BYTES, path=self.token_file)
        text = data.decode("ascii", "replace").strip()
        if not text or not text.isprintable() or not text.isascii():
            raise ConfigError("holds no token", path=self.token_file)
        return (("authorization", f"Bearer {text}"),)


class AdsStream:
    """One stream. Whoever opens it closes it."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel = channel
        call = channel.stream_stream(
            ADS_METHOD, request_serializer=encode_request, response_deserializer=decode_response
        )
        self._call = call(metadata=metadata)

    @classmethod
    async def open(cls, server: ServerAddress) -> Self:
        """A new stream; whether the server can be reached shows when it is used."""
        credentials, metadata = await aside(lambda: (server.credentials(), server.metadata()))
        channel = (
            grpc.aio.insecure_channel(server.target, _OPTIONS)
            if credentials is None
            else grpc.aio.secure_channel(server.target, credentials, _OPTIONS)
        )
        return cls(channel, metadata)

    async def send(self, request: Request) -> None:
        """``StreamError`` when the stream is over."""
        try:
            await self._call.write(request)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError) as error:
            raise StreamError(_said(error)) from None

    async def established(self) -> None:
        """Return once the server has taken the stream. ``StreamError`` when it does not."""
        try:
            await self._call.wait_for_connection()
        except grpc.aio.AioRpcError as error:
            raise StreamError(_said(error)) from None

    async def receive(self) -> Response:
        """The next response. ``StreamError`` when the stream is over."""
        try:
            found = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise StreamError(_said(error)) from None
        if found is grpc.aio.EOF or not isinstance(found, Response):
            raise StreamError("the control plane has ended the stream")
        return found

    async def close(self) -> None:
        """End the stream and its connection."""
        self._call.cancel()
        await self._channel.close()


def _said(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details() or 'no details'}"[:300]
    return str(error)[:300]


def _pem(name: str) -> bytes:
    return read_regular_file(name, MAX_PEM_BYTES, path=name)
