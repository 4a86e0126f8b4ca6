"""The ext_proc server: listeners, connections and their end.

`ExtProcServer` owns the listening sockets, the set of open connections, the timers and the certificate; a
connection owns its streams. It serves whatever is in ``services``, so the health service can share the port
or have a server of its own. Signals are the application's business: it calls `drain`, then nothing more is
needed, or `stop` at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
from dataclasses import dataclass, field
from typing import Any, Final

from dataplane.addresses import host_port
from dataplane.errors import ConfigError
from dataplane.extproc.health import HealthState
from dataplane.extproc.http2 import Connection, Limits, Services
from dataplane.extproc.http2.heads import HeadReader
from dataplane.extproc.transport_metrics import LoopLagMonitor, TransportMetrics
from dataplane.server_tls import ServerTls, TlsOptions

log = logging.getLogger(__name__)

STOP_GRACE_S: Final = 1.0
"""How long a connection may take to be flushed and closed before it is cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """Where a server listens and what it allows."""

    host: str = ""
    """Address or name to bind; empty for all interfaces, IPv6 included."""

    port: int | None = 9002
    """TCP port; 0 for any free one, None for no TCP."""

    port_flag: str = "--grpc-port"
    """The flag an operator would change; named in errors."""

    unix_path: str = ""
    """Path of a Unix socket to listen on as well; it is never encrypted."""

    unix_flag: str = "--grpc-unix-path"
    """The same for the Unix socket."""

    tls: TlsOptions | None = None
    """None for plain TCP."""

    max_connections: int = 1024
    """Beyond it new connections are closed at once. Envoy opens one per worker thread."""

    backlog: int = 1024
    """Connections the kernel holds until they are accepted."""

    limits: Limits = field(default_factory=Limits)
    """Caps of each connection."""


class ExtProcServer:
    """One or two listeners, TCP and Unix, that serve the same."""

    def __init__(
        self,
        options: ServerOptions,
        services: Services,
        *,
        metrics: TransportMetrics | None = None,
        health: HealthState | None = None,
    ) -> None:
        self._options = options
        self._reader = HeadReader(services, options.limits)
        self._health = health
        self.metrics = metrics or TransportMetrics()
        self._connections: set[Connection] = set()
        self._servers: list[asyncio.Server] = []
        self._tls: ServerTls | None = None
        self._lag: LoopLagMonitor | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()
        self._all_closed.set()
        self._unix_inode = 0
        self._port = 0
        self._closing = False

    @property
    def port(self) -> int:
        """The TCP port that is bound; 0 before `start` and without TCP."""
        return self._port

    @property
    def connections(self) -> int:
        """Connections open."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen. Raises ConfigError, naming the flag, when an address or a certificate cannot be used."""
        options = self._options
        loop = asyncio.get_running_loop()
        try:
            if options.port is not None:
                await self._listen_tcp(loop, options.port)
            if options.unix_path:
                listener = _unix_listener(options)
                self._unix_inode = os.stat(options.unix_path).st_ino
                self._servers.append(await loop.create_unix_server(self._connection, sock=listener))
        except BaseException:  # also when it is cancelled, nothing may stay open
            await self.stop()
            raise
        self._lag = LoopLagMonitor(self.metrics, loop)
        self._lag.start()
        self._tick()

    async def drain(self, timeout_s: float) -> None:
        """Stop taking work, let what runs finish, then stop.

        Readiness is false at once, the listeners close, and every connection is told (GOAWAY). Streams that
        are still running after ``timeout_s`` end with grpc-status 14 and their handlers hear `on_cancel`.
        """
        if self._health is not None:
            self._health.set_draining()
        self._closing = True
        self._close_listeners()
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(timeout_s):
                await self._all_closed.wait()
        except TimeoutError:
            log.warning("%d connections did not drain within %g s", len(self._connections), timeout_s)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End everything now. Safe to call at any time, more than once, and while a drain waits."""
        self._closing = True
        self._close_listeners()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._lag is not None:
            self._lag.stop()
        if self._tls is not None:
            self._tls.stop()
        try:
            for connection in list(self._connections):
                connection.close("the server stops")
            async with asyncio.timeout(STOP_GRACE_S):
                await self._all_closed.wait()
        except TimeoutError:
            pass
        finally:
            for connection in list(self._connections):
                connection.abort()
        await self._all_closed.wait()

    def opened(self, connection: Connection) -> bool:
        """A connection is up; False when there is no room for it."""
        if self._closing or len(self._connections) >= self._options.max_connections:
            self.metrics.connections_refused += 1
            return False
        self._connections.add(connection)
        self._all_closed.clear()
        return True

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    def _connection(self) -> Connection:
        return Connection(self._reader, self._options.limits, self.metrics, owner=self)

    async def _listen_tcp(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        options = self._options
        handshake_s = None
        if options.tls is not None:
            self._tls = ServerTls(options.tls, self.metrics)
            handshake_s = options.limits.preface_timeout_s
        listener = await _tcp_listener(loop, options, port)
        self._port = listener.getsockname()[1]
        context = self._tls.context if self._tls is not None else None
        server = await loop.create_server(
            self._connection,
            sock=listener,
            ssl=context,
            ssl_handshake_timeout=handshake_s,
            backlog=options.backlog,
        )
        self._servers.append(server)
        if self._tls is not None:
            self._tls.start()

    def _tick(self) -> None:
        for connection in list(self._connections):
            connection.tick()
        interval = self._options.limits.flood_interval_s
        self._timer = asyncio.get_running_loop().call_later(interval, self._tick)

    def _close_listeners(self) -> None:
        for server in self._servers:
            server.close()
        self._servers.clear()
        if self._unix_inode:
            _unlink_if_ours(self._options.unix_path, self._unix_inode)
            self._unix_inode = 0


async def _tcp_listener(loop: asyncio.AbstractEventLoop, options: ServerOptions, port: int) -> socket.socket:
    if not 0 <= port <= 65_535:
        raise ConfigError(f"{port} is not a port; choose one between 0 and 65535", path=options.port_flag)
    try:
        if not options.host and socket.has_dualstack_ipv6():
            listener = _bound(socket.AF_INET6, ("::", port), dual_stack=True)
        else:
            host = options.host or "0.0.0.0"  # noqa: S104 - an empty host means all interfaces
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = found[0]
            listener = _bound(family, address)
    except (OSError, ValueError) as error:  # ValueError: a host name that cannot be one
        raise ConfigError(_why_not(options.host, port, error), path=options.port_flag) from error
    return listener


def _bound(family: int, address: tuple[Any, ...], *, dual_stack: bool = False) -> socket.socket:
    """A bound TCP socket; what is set on it is inherited by the connections it accepts."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if dual_stack:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.setblocking(False)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


def _why_not(host: str, port: int, error: OSError | ValueError) -> str:
    where = host_port(host, port) if host else f"port {port}"
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"{where} is in use by another process; stop it or choose another port"
    if number == errno.EACCES:
        return f"{where} may not be opened by this user; choose a port above 1023"
    return f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}"


def _unix_listener(options: ServerOptions) -> socket.socket:
    path = options.unix_path
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        _remove_stale_socket(path)
        listener.bind(path)
        listener.listen(options.backlog)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot listen on {path!r}: {reason}", path=options.unix_flag) from error
    return listener


def _remove_stale_socket(path: str) -> None:
    """Remove what a killed process left behind; a socket that somebody listens on, or no socket, stays."""
    try:
        is_socket = stat.S_ISSOCK(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise FileExistsError(errno.EEXIST, "a file that is not a socket is there; remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.2)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, "another process listens there; stop it or choose another path")


def _unlink_if_ours(path: str, inode: int) -> None:
    try:
        if os.stat(path).st_ino == inode:
            os.unlink(path)
    except OSError as error:
        log.debug("the socket %s was already gone: %s", path, error)
