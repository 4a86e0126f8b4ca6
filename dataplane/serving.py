"""The frame of an ext_proc process: from options to listeners, and from signals to an orderly end.

A process starts before anything is promised, serves until SIGTERM or SIGINT, drains within its timeout and
exits 0; a second signal stops it at once. A mistake in flags, configuration or ports ends the start with
every mistake said and exit code 2. SIGHUP reads files at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import uvloop

from dataplane.config.problems import ConfigErrors
from dataplane.errors import ConfigError
from dataplane.extproc.health import HealthState
from dataplane.extproc.http2 import Limits, StreamFactory
from dataplane.extproc.server import ExtProcServer, ServerOptions
from dataplane.files import read_regular_file
from dataplane.observability import logs
from dataplane.server_tls import TlsOptions

log = logging.getLogger(__name__)

EXIT_USAGE: Final = 2
MAX_CONFIG_BYTES: Final = 4 * 1024 * 1024

GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Requests leave no reference cycles behind, so the cyclic collector finds little and runs seldom."""


class ProcessOptions(Protocol):
    """What the options of every ext_proc process have, by the names of the flags."""

    @property
    def host(self) -> str: ...
    @property
    def grpc_port(self) -> int: ...
    @property
    def grpc_socket(self) -> str: ...
    @property
    def grpc_max_recv_msg_size(self) -> int | None: ...
    @property
    def secure_serving(self) -> bool: ...
    @property
    def cert_path(self) -> str: ...
    @property
    def enable_cert_reload(self) -> bool: ...
    @property
    def tls_min_version(self) -> str: ...
    @property
    def tls_cipher_suites(self) -> tuple[str, ...]: ...
    @property
    def metrics_cert_dir(self) -> str: ...
    @property
    def metrics_client_ca_file(self) -> str: ...
    @property
    def config_file(self) -> str: ...
    @property
    def config_text(self) -> str: ...
    @property
    def drain_timeout(self) -> float: ...
    @property
    def log_level(self) -> int: ...
    @property
    def log_json(self) -> bool: ...


class Process(Protocol):
    """What is run."""

    async def start(self) -> None:
        """Bring everything up; on failure nothing stays up."""

    async def reload(self) -> list[str]:
        """Read files; what is wrong with them."""

    async def drain(self) -> None:
        """Refuse new work, let running streams finish within the drain timeout."""

    async def stop(self) -> None:
        """End every part. Safe in any state."""


def run_process(name: str, options: ProcessOptions, make: Callable[[], Process]) -> int:
    """Run a process until a signal ends it. Returns the exit code; ``name`` is the subcommand's."""
    logs.configure(options.log_level, json=options.log_json)
    try:
        return uvloop.run(_serve(make, options.drain_timeout))
    except ConfigErrors as errors:
        source = errors.source or options.config_file or "--config-text"
        for error in errors.errors:
            sys.stderr.write(f"pointsman {name}: {source}: {error}\n")
    except ConfigError as error:
        sys.stderr.write(f"pointsman {name}: {error}\n")
    return EXIT_USAGE


async def _serve(make: Callable[[], Process], drain_timeout: float) -> int:
    process = make()
    stop, again = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: (again if stop.is_set() else stop).set())
    if not await _start_unless(stop, process):
        return 0
    reloads: set[asyncio.Task[list[str]]] = set()

    def reload() -> None:
        task = loop.create_task(process.reload())
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        await stop.wait()
        log.info("draining: running streams have %g s; a second signal stops at once", drain_timeout)
        drain = asyncio.create_task(process.drain())
        cut = asyncio.create_task(again.wait())
        await asyncio.wait((drain, cut), return_when=asyncio.FIRST_COMPLETED)
        for task in (drain, cut):
            task.cancel()
        await asyncio.gather(drain, cut, return_exceptions=True)
    finally:
        await process.stop()
    return 0


async def _start_unless(stop: asyncio.Event, process: Process) -> bool:
    """Start; False when a signal ends it first, as it must when a file hangs."""
    starting, stopping = asyncio.create_task(process.start()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    return False


def ext_proc_server(
    options: ProcessOptions, services: Mapping[bytes, StreamFactory], health: HealthState
) -> ExtProcServer:
    """The listener of the ext_proc service."""
    tls = TlsOptions(
        cert_path=options.cert_path,
        reload=options.enable_cert_reload,
        min_version=options.tls_min_version,
        cipher_suites=options.tls_cipher_suites,
    )
    limits = Limits()
    if options.grpc_max_recv_msg_size is not None:
        limits = Limits(max_message_size=options.grpc_max_recv_msg_size)
    return ExtProcServer(
        ServerOptions(
            host=options.host,
            port=None if options.grpc_socket else options.grpc_port,
            unix_path=options.grpc_socket,
            unix_flag="--grpc-socket",
            tls=tls if options.secure_serving and not options.grpc_socket else None,
            limits=limits,
        ),
        services,
        health=health,
    )


def metrics_tls(options: ProcessOptions) -> TlsOptions | None:
    """How the metrics port speaks TLS; None = it does not."""
    if not options.metrics_cert_dir:
        return None
    return TlsOptions(
        cert_path=options.metrics_cert_dir,
        reload=True,
        min_version=options.tls_min_version,
        cipher_suites=options.tls_cipher_suites,
        alpn=("http/1.1",),
        client_ca_file=options.metrics_client_ca_file,
        path_flag="--metrics-cert-dir",
        client_ca_flag="--metrics-client-ca-file",
    )


def read_config(options: ProcessOptions) -> bytes:
    """The configuration's text; empty for the built-in default. ``ConfigError`` names the flag."""
    if not options.config_file:
        return options.config_text.encode("utf-8", "surrogateescape")
    return read_regular_file(
        options.config_file, MAX_CONFIG_BYTES, path=f"--config-file {options.config_file}"
    )
