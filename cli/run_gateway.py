"""`pointsman controlplane run-gateway`: an Envoy that a control plane tells everything, on this machine."""

import argparse
import asyncio
import contextlib
import json
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from cli.local.commands import envoy_binary
from dataplane.errors import ConfigError
from dataplane.processes.child import StartError
from dataplane.processes.folder import locked

REFUSED = 2
FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say which gateway, and where the control plane is."""
    parser.add_argument("name", help="the Gateway")
    parser.add_argument("--xds-server", required=True, metavar="HOST:PORT", help="address of serve-xds")
    parser.add_argument(
        "--xds-token-file",
        default="",
        metavar="FILE",
        help="token of a worker, bound to the gateway; not needed with a certificate that names it",
    )
    parser.add_argument("--xds-ca", default="", metavar="FILE", help="authorities of its certificate, PEM")
    parser.add_argument("--xds-cert", default="", metavar="FILE", help="certificate of our own, PEM")
    parser.add_argument("--xds-key", default="", metavar="FILE", help="its key, PEM")
    parser.add_argument("--node-id", default="", metavar="ID", help="default: NAME and the host's name")
    parser.add_argument("--admin-port", type=int, default=9901, help="Envoy's own pages, on loopback (9901)")
    parser.add_argument("--workers", type=int, default=1, help="Envoy's worker threads (1)")
    parser.add_argument(
        "--state-dir", type=Path, metavar="DIR", help="last good configuration and log (.state/gateways/NAME)"
    )
    parser.add_argument("--print-bootstrap", action="store_true", help="only print what Envoy starts with")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal ends it."""
    from controlplane.gateways.running import GatewayOptions, bootstrap_of
    from controlplane.xds.envoy.bootstrap import EnvoyIdentity
    from dataplane.xds.transport import ServerAddress

    def command(file: Path) -> Sequence[str | Path]:
        return [
            envoy_binary(),
            *("--config-path", file),
            *("--concurrency", str(arguments.workers)),
            *("--log-level", "warning"),
            *("--component-log-level", "ext_proc:error"),
            "--disable-hot-restart",
            *("--file-flush-interval-msec", "1000"),
        ]

    folder = arguments.state_dir or Path(".state/gateways") / arguments.name
    options = GatewayOptions(
        envoy=EnvoyIdentity(
            node_id=arguments.node_id or f"{arguments.name}.{socket.gethostname()}",
            gateway=arguments.name,
            admin_port=arguments.admin_port,
        ),
        server=ServerAddress(
            target=arguments.xds_server,
            token_file=arguments.xds_token_file,
            ca_file=arguments.xds_ca,
            cert_file=arguments.xds_cert,
            key_file=arguments.xds_key,
        ),
        folder=folder.absolute(),
        command=command,
    )
    try:
        check(arguments)
        document = bootstrap_of(options)
        if arguments.print_bootstrap:
            print(json.dumps(document, indent=1))
            return 0
        with locked(options.folder):
            asyncio.run(_serve(options))
    except ConfigError as error:
        sys.stderr.write(f"pointsman controlplane run-gateway: error: {error}\n")
        return REFUSED
    except StartError as error:
        sys.stderr.write(f"pointsman controlplane run-gateway: error: {error}\n")
        return FAILED
    return 0


def check(arguments: argparse.Namespace) -> None:
    """`ConfigError` when flags miss others that they need."""
    if not (arguments.xds_token_file or arguments.xds_cert):
        raise ConfigError("is needed, or --xds-cert", path="--xds-token-file")
    for name, other in (("cert", "key"), ("key", "cert"), ("cert", "ca")):
        if getattr(arguments, f"xds_{name}") and not getattr(arguments, f"xds_{other}"):
            raise ConfigError(f"needs --xds-{other}", path=f"--xds-{name}")


async def _serve(options: object) -> None:
    from controlplane.gateways.running import GatewayOptions, GatewayRunner

    assert isinstance(options, GatewayOptions)  # noqa: S101 - imported late, so that help costs nothing
    work = asyncio.create_task(GatewayRunner(options, say).run())
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await work


def say(text: str) -> None:
    """One line for whoever reads the process's output."""
    sys.stdout.write(f"gateway: {text}\n")
    sys.stdout.flush()
