"""A fleet of simulated model servers in one process and one event loop: the entry point of the package.

`Fleet` owns every replica and the admin port. Replicas share the table their answers come from and nothing
else; an idle one has no task and no timer, only its socket.
"""

import asyncio
import contextlib
import functools
import ipaddress
import socket
from pathlib import Path

import msgspec
from aiohttp.web import BaseRequest, Response, Server, StreamResponse

from simulator import admin, endpoints_file
from simulator.call import JSON, Call
from simulator.errors import ApiError
from simulator.model_server import ModelServer
from simulator.options import SimOptions, limits_of, profile_of, served_names
from simulator.replica import CLOSE_TIMEOUT_S, Replica, bind
from simulator.text import AnswerSource

SAME_PORT_ATTEMPTS = 16
"""Free ports tried until one is free on all addresses of a fleet."""


class Fleet:
    """Replicas by `options`; `start` and `stop` once each, in the loop that runs them."""

    def __init__(self, options: SimOptions) -> None:
        self.options = options
        self.limits = limits_of(options, profile_of(options))
        self.replicas: list[Replica] = []
        self.admin_port = 0
        """Port of the admin server once started, 0 without one."""
        self._answers = AnswerSource(options.mode, options.seed)
        self._admin: asyncio.Server | None = None
        self._admin_http: Server | None = None

    async def start(self) -> None:
        """Listen with all replicas, then write the endpoints file; OSError, and nothing left open, if not."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Drop all connections and close all sockets."""
        for replica in self.replicas:
            await replica.kill()
        if self._admin is not None and self._admin_http is not None:
            self._admin.close()
            await self._admin_http.shutdown(CLOSE_TIMEOUT_S)
            self._admin = self._admin_http = None

    async def _start(self) -> None:
        options = self.options
        loop = asyncio.get_running_loop()
        prefix = options.name_prefix or endpoints_file.label(served_names(options)[0].rpartition("/")[2])
        with contextlib.ExitStack() as unused:
            sockets = [unused.enter_context(sock) for sock in self._bind_all()]
            for index, sock in enumerate(sockets):
                birth = functools.partial(ModelServer, options, self.limits, self._answers, index, loop)
                replica = Replica(f"{prefix}-{index}", options.namespace, birth)
                await replica.listen(sock)
                self.replicas.append(replica)
            unused.pop_all()
        if options.admin_port is not None:
            await self._start_admin(options.admin_port)
        if options.endpoints_file:
            document = endpoints_file.document(self.replicas, served_names(options)[0])
            endpoints_file.write(Path(options.endpoints_file), document)

    def _bind_all(self) -> list[socket.socket]:
        options = self.options
        if options.address_base:
            first = ipaddress.ip_address(options.address_base)
            addresses = [str(first + index) for index in range(options.replicas)]
            return _bind_one_port(addresses, options.port)
        step = 1 if options.port else 0
        return _bind([(options.host, options.port + step * index) for index in range(options.replicas)])

    async def _start_admin(self, port: int) -> None:
        host = self.options.address_base or self.options.host
        sock = bind(host, port)
        self.admin_port = sock.getsockname()[1]
        self._admin_http = Server(self._administer, access_log=None)
        self._admin = await asyncio.get_running_loop().create_server(self._admin_http, sock=sock)

    async def _administer(self, request: BaseRequest) -> StreamResponse:
        try:
            return Response(body=await self._answer(request), headers={"content-type": JSON})
        except ApiError as error:
            return Response(body=error.body(), status=error.status, headers={"content-type": JSON})

    async def _answer(self, request: BaseRequest) -> bytes:
        parts = request.path.strip("/").split("/")
        if parts == ["replicas"] and request.method == "GET":
            rows = [{"index": i, **admin.status(replica)} for i, replica in enumerate(self.replicas)]
            return msgspec.json.encode(rows)
        if len(parts) != len(("replicas", "index", "action")) or parts[0] != "replicas":
            raise ApiError(404, "use GET /replicas, or /replicas/INDEX/ and config, kill, hang or revive")
        if not (parts[1].isascii() and parts[1].isdigit() and int(parts[1][:9]) < len(self.replicas)):
            raise ApiError(404, f"no replica {parts[1][:40]!r}; there are {len(self.replicas)}, from 0 on")
        replica = self.replicas[int(parts[1][:9])]
        call = Call(request, replica.server, {})
        await call.read_body()
        return await admin.perform(replica, request.method, parts[2], call.body)


def _bind(places: list[tuple[str, int]]) -> list[socket.socket]:
    """Bind every place or none."""
    with contextlib.ExitStack() as opened:
        sockets = [opened.enter_context(bind(*place)) for place in places]
        opened.pop_all()
        return sockets


def _bind_one_port(addresses: list[str], port: int) -> list[socket.socket]:
    """Bind `port` on all addresses; when it is 0, a port that is free on all of them."""
    for attempt in range(SAME_PORT_ATTEMPTS):
        first = bind(addresses[0], port)
        chosen = first.getsockname()[1]
        try:
            return [first, *_bind([(address, chosen) for address in addresses[1:]])]
        except OSError:
            first.close()
            if port or attempt == SAME_PORT_ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable: the last attempt returns or raises")
