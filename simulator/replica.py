"""One replica: a model server behind a listening socket, which can be killed, hung and revived.

A killed replica refuses connections and has dropped the open ones, like a process that got SIGKILL; a hung
one accepts connections, reads requests and answers nothing, like a process that got SIGSTOP. Only `/admin/*`
is answered while it hangs.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Literal

from aiohttp.web import BaseRequest, Response, Server, StreamResponse

from dataplane.addresses import host_port
from simulator import admin, completions, headers, other_endpoints
from simulator.call import JSON, Call
from simulator.errors import ApiError
from simulator.model_server import ModelServer

BACKLOG = 1024
MAX_HEADER_BYTES = 64 * 1024
READ_BUFFER_BYTES = 1 << 20
LINGER_S = 2.0
"""How long the rest of a refused body is read, so that the client gets to see the answer."""
CLOSE_TIMEOUT_S = 1.0

Handler = Callable[[Call], Awaitable[StreamResponse]]

GENERATING: dict[str, Handler] = {
    "/v1/chat/completions": completions.chat_completions,
    "/v1/completions": completions.completions,
    "/v1/embeddings": other_endpoints.embeddings,
}
"""Endpoints whose requests can be made to fail."""

ROUTES: dict[str, dict[str, Handler]] = {
    **{path: {"POST": handler} for path, handler in GENERATING.items()},
    "/v1/chat/completions/render": {"POST": other_endpoints.render_chat},
    "/v1/completions/render": {"POST": other_endpoints.render_texts},
    "/tokenize": {"POST": other_endpoints.tokenize},
    "/v1/models": {"GET": other_endpoints.models},
    "/version": {"GET": other_endpoints.version},
    "/health": {"GET": other_endpoints.health},
    "/metrics": {"GET": other_endpoints.show_metrics},
}

State = Literal["running", "hung", "killed"]


class Replica:
    """Owns one listening socket, its connections and the life of one model server."""

    def __init__(self, name: str, namespace: str, birth: Callable[[], ModelServer]) -> None:
        self.name = name
        self.namespace = namespace
        self.address = ""
        self.port = 0
        self.server = birth()
        self._birth = birth
        self._identity: dict[str, str] = {}
        self._http: Server | None = None
        self._listener: asyncio.Server | None = None
        self._awake = asyncio.Event()
        self._awake.set()
        self._waker: asyncio.TimerHandle | None = None

    @property
    def state(self) -> State:
        """Return whether it runs, hangs or is dead."""
        if self._listener is None:
            return "killed"
        return "running" if self._awake.is_set() else "hung"

    async def listen(self, sock: socket.socket) -> None:
        """Serve on `sock`, a bound TCP socket, which it owns from here on."""
        self.address, self.port = sock.getsockname()[:2]
        self._identity = {
            "server": other_endpoints.VERSION,
            headers.POD: self.name,
            headers.PORT: str(self.port),
            headers.NAMESPACE: self.namespace,
        }
        self._http = Server(
            self._handle,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            read_bufsize=READ_BUFFER_BYTES,
            lingering_time=LINGER_S,
        )
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(self._http, sock=sock, backlog=BACKLOG)

    async def kill(self, spare: asyncio.BaseTransport | None = None) -> None:
        """Close the socket, drop every connection but `spare`, lose all state."""
        listener, http = self._listener, self._http
        self._listener = self._http = None
        self.server.runner.stop()
        self._wake()
        if listener is None or http is None:
            return
        listener.close()
        for connection in http.connections:
            transport = connection.transport
            if transport is not None and transport is not spare:
                transport.abort()
        if spare is None:
            await http.shutdown(CLOSE_TIMEOUT_S)

    async def revive(self) -> None:
        """Start over at the same address, if it is dead, else just wake up; OSError if the port is taken."""
        self._wake()
        if self._listener is None:
            sock = bind(self.address, self.port)
            self.server = self._birth()
            await self.listen(sock)

    def hang(self, seconds: float | None) -> None:
        """Answer nothing for `seconds`, or until `revive` when None; 0 ends it."""
        self._wake()
        if self._listener is None or seconds == 0:
            return
        self._awake.clear()
        self.server.runner.pause()
        if seconds is not None:
            self._waker = asyncio.get_running_loop().call_later(seconds, self._wake)

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.cancel()
            self._waker = None
        if not self._awake.is_set():
            self._awake.set()
            self.server.runner.resume()

    async def _handle(self, request: BaseRequest) -> StreamResponse:
        path = request.path
        call = Call(request, self.server, self._identity)
        try:
            await call.read_body()
            if path.startswith("/admin/"):
                return await self._administer(call, path.removeprefix("/admin/"))
            if not self._awake.is_set():
                await self._awake.wait()
            return await self._route(call, path)
        except ApiError as error:
            return call.failure(error)

    async def _route(self, call: Call, path: str) -> StreamResponse:
        methods = ROUTES.get(path)
        if methods is None:
            return Response(body=b'{"detail":"Not Found"}', status=404, headers=call.headers(JSON))
        handler = methods.get(call.request.method)
        if handler is None:
            made = call.headers(JSON) | {"Allow": ", ".join(methods)}
            return Response(body=b'{"detail":"Method Not Allowed"}', status=405, headers=made)
        if path in GENERATING:
            call.server.faults.check(call.request.headers.get(headers.RETURN_ERROR), call.server.runtime)
        return await handler(call)

    async def _administer(self, call: Call, action: str) -> StreamResponse:
        transport = call.request.transport
        answer = await admin.perform(self, call.request.method, action, call.body, spare=transport)
        response = call.json(answer)
        if self._listener is None:
            response.force_close()
        return response


def bind(address: str, port: int) -> socket.socket:
    """Return a TCP socket bound to `address` and `port` (0: a free one); OSError naming both."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((address, port))
    except OSError as error:
        sock.close()
        where, why = host_port(address, port), error.strerror or error
        raise OSError(error.errno, f"cannot listen on {where}: {why}") from error
    return sock
