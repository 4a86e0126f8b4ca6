"""`pointsman up`: a whole gateway on this machine, driven by one YAML file.

Envoy, an Endpoint Picker per pool and simulated model servers run as child processes. The first Ctrl-C or
SIGTERM stops them in order, a second one kills them; the kernel kills them if this process is killed
itself.
"""

import argparse
import asyncio
import json
import random
import resource
import signal
import sys
from pathlib import Path
from typing import TextIO

import msgspec

from cli.arguments import Subparsers
from cli.local.config import LocalConfig, load, with_free_ports
from cli.local.gateway import Gateway
from cli.local.plan import Plan, make_plan
from cli.local.screen import GatewayView, addresses
from cli.local.smoke.runner import run_checks
from cli.local.tries import tries
from cli.terminal import LiveScreen, PlainScreen, Screen
from dataplane.errors import ConfigError
from dataplane.processes.child import StartError
from dataplane.processes.folder import locked
from dataplane.processes.ports import Ports

CHECKOUT = Path(__file__).resolve().parent.parent
FAILED = 1
REFUSED = 2


def add_parser(subparsers: Subparsers) -> None:
    """Add the `up` subcommand."""
    parser = subparsers.add_parser(
        "up",
        help="run a whole gateway with a simulated fleet on this machine",
        description="Run Envoy, an Endpoint Picker per pool and simulated model servers until Ctrl-C.",
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=CHECKOUT / "deploy/local.yaml",
        metavar="FILE",
        help="(default: %(default)s)",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="logs and generated files (default: .state in the checkout)",
    )
    parser.add_argument("--port", type=port, metavar="N", help="public port, instead of the file's")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="start on free ports, try everything, print a JSON summary on stdout, exit 0 or 1",
    )
    parser.set_defaults(run=run)


def port(text: str) -> int:
    """Parse a port number."""
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{number} is not between 0 and 65535")
    return number


def run(arguments: argparse.Namespace) -> int:
    """Run until stopped; 0 when it ran, 1 when a start or a check failed, 2 for a bad file."""
    screen: Screen = (
        LiveScreen() if sys.stdout.isatty() and not arguments.smoke else PlainScreen(output(arguments))
    )
    state = arguments.state_dir or CHECKOUT / (".state/smoke" if arguments.smoke else ".state")
    raise_file_limit()
    try:
        config = load(arguments.config)
        with locked(state.resolve()):
            plan = make_plan(adjusted(config, arguments), state.resolve(), Ports(random.SystemRandom()))
            code = asyncio.run(serve(plan, screen, smoke=arguments.smoke))
        screen.say("everything is stopped")
        return code
    except ConfigError as error:
        sys.stderr.write(f"pointsman up: error: {arguments.config}: {error}\n")
        return REFUSED
    except StartError as error:
        sys.stderr.write(f"pointsman up: error: {error}\n")
        return FAILED


def raise_file_limit() -> None:
    """Allow this process and its children as many open files, hence connections, as the system lets them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def output(arguments: argparse.Namespace) -> TextIO:
    """Return where progress goes; a smoke run keeps stdout for its summary."""
    return sys.stderr if arguments.smoke else sys.stdout


def adjusted(config: LocalConfig, arguments: argparse.Namespace) -> LocalConfig:
    """Apply the flags to the file's content."""
    if arguments.smoke:
        config = with_free_ports(config)
    if arguments.port is not None:
        config = msgspec.structs.replace(
            config, gateway=msgspec.structs.replace(config.gateway, port=arguments.port)
        )
    return config


async def serve(plan: Plan, screen: Screen, *, smoke: bool) -> int:
    """Start, then watch until a signal, or run the smoke checks; everything is stopped when this returns."""
    async with Gateway(plan, screen.say, screen.busy) as gateway:
        work = asyncio.create_task(check(gateway, screen) if smoke else watch(gateway, screen))
        stop_on_signals(work, gateway, screen)
        try:
            return await work
        except asyncio.CancelledError:
            return FAILED if smoke else 0
        finally:
            screen.busy("")


async def watch(gateway: Gateway, screen: Screen) -> int:
    """Start and show the state of things until cancelled."""
    await gateway.start()
    screen.busy("")
    screen.introduce(addresses(gateway.plan), tries(gateway.plan))
    await screen.watch(GatewayView(gateway))
    return 0


async def check(gateway: Gateway, screen: Screen) -> int:
    """Start, run the smoke checks, print the summary."""
    await gateway.start()
    summary = await run_checks(gateway, screen.say)
    print(json.dumps(summary, indent=2))
    return 0 if summary["result"] == "passed" else FAILED


def stop_on_signals(work: asyncio.Task[int], gateway: Gateway, screen: Screen) -> None:
    """Let the first signal end `work`, and a later one everything at once."""
    loop = asyncio.get_running_loop()

    def on_signal(name: str) -> None:
        if work.done() or work.cancelling():
            screen.say(f"{name} again: killing everything")
            gateway.kill()
        else:
            screen.say(f"{name}: stopping")
            work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number.name)
