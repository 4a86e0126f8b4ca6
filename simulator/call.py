"""One HTTP request on its way through a replica, and the headers that every response carries."""

import hashlib

import msgspec
from aiohttp.web import BaseRequest, RequestPayloadError, Response

from simulator import headers
from simulator.errors import ApiError
from simulator.model_server import ModelServer

MAX_ECHOED_VALUE = 512
"""Longest header value, in characters, that the echo repeats whole."""

MAX_ECHOED_BYTES = 6 * 1024
"""Longest `x-received-headers`, so that clients with a limit of 8 KiB per header can read it."""

MAX_REQUEST_ID = 128
"""Longest identifier of a client, in characters, that is kept; one that is not ASCII is replaced."""

JSON = "application/json"


class Call:
    """A request, its body once read, and the model server it reached."""

    __slots__ = ("body", "identity", "request", "server")

    def __init__(self, request: BaseRequest, server: ModelServer, identity: dict[str, str]) -> None:
        self.request = request
        self.server = server
        self.identity = identity
        """Headers that tell which replica answers."""
        self.body = b""

    async def read_body(self) -> None:
        """Read the whole body; ApiError 413 when it is larger than allowed, 400 when it is cut off."""
        request = self.request
        limit = self.server.options.max_request_body_size_mb << 20
        if (request.content_length or 0) > limit:
            raise self._too_large(limit)
        transport = request.transport
        expected = request.headers.get("Expect", "").lower() == "100-continue"
        if expected and transport is not None and not transport.is_closing():
            transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        chunks: list[bytes] = []
        size = 0
        try:
            while chunk := await request.content.readany():
                size += len(chunk)
                if size > limit:
                    raise self._too_large(limit)
                chunks.append(chunk)
        except RequestPayloadError as error:
            raise ApiError(400, f"The body cannot be read: {error}") from error
        self.body = chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def headers(self, content_type: str = JSON) -> dict[str, str]:
        """Return the headers of the response: identity, content type and what the client asked to be told."""
        made = {**self.identity, "content-type": content_type}
        asked = self.request.headers
        if headers.ECHO_DIGEST in asked and asked[headers.ECHO_DIGEST] == "1":
            made |= self._echo()
        if self.server.options.enable_request_id_headers and self._given_id():
            made[headers.REQUEST_ID] = self._given_id()
        return made

    def json(self, body: bytes, status: int = 200) -> Response:
        """Return a JSON response."""
        return Response(body=body, status=status, headers=self.headers())

    def failure(self, error: ApiError) -> Response:
        """Return the response that tells `error`."""
        return Response(body=error.body(), status=error.status, headers=self.headers() | error.headers)

    def request_id(self) -> str:
        """Return the identifier the client gave, else a new one."""
        return self._given_id() or self.server.new_id()

    def _given_id(self) -> str:
        given = self.request.headers.get(headers.REQUEST_ID, "")[:MAX_REQUEST_ID]
        return given if given.isascii() else ""

    def _echo(self) -> dict[str, str]:
        digest = hashlib.sha256(self.body).hexdigest()
        told, cut = received_headers(self.request.raw_headers)
        echo = {
            headers.BODY_SHA256: digest,
            headers.BODY_BYTES: str(len(self.body)),
            headers.RECEIVED_HEADERS: told,
        }
        if cut:
            echo[headers.RECEIVED_HEADERS_CUT] = str(cut)
        return echo

    @staticmethod
    def _too_large(limit: int) -> ApiError:
        return ApiError(413, f"The body is larger than {limit} bytes (max-request-body-size-mb).")


def received_headers(raw: tuple[tuple[bytes, bytes], ...]) -> tuple[str, int]:
    """Return header pairs as a JSON array within the size limits, and how many were shortened or left out."""
    parts: list[str] = []
    size, cut = 2, 0
    for name, value in raw:
        text = value.decode("latin-1")
        pair = msgspec.json.encode([name.decode("latin-1"), text[:MAX_ECHOED_VALUE]]).decode()
        plain = "".join(letter if letter.isascii() else f"\\u{ord(letter):04x}" for letter in pair)
        if size + len(plain) + 1 > MAX_ECHOED_BYTES:
            cut += 1
            continue
        cut += len(text) > MAX_ECHOED_VALUE
        size += len(plain) + 1
        parts.append(plain)
    return f"[{','.join(parts)}]", cut
