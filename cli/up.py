"""`pointsman up`: the whole product on this machine, driven by its control plane, or a gateway from one file.

Everything runs as child processes. The first Ctrl-C or SIGTERM stops them in order, a second one kills
them; the kernel kills them if this process is killed itself.
"""

import argparse
import asyncio
import json
import random
import resource
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol, TextIO

import msgspec

from cli.arguments import Subparsers
from cli.local.config import LocalConfig, load, with_free_ports
from cli.local.gateway import Gateway
from cli.local.plan import make_plan
from cli.local.screen import GatewayView, addresses
from cli.local.smoke.runner import run_checks
from cli.local.tries import tries
from cli.machine.introduction import introduction, machine_tries, secrets
from cli.machine.layout import DEFAULT_WEB_PORT, make_layout
from cli.machine.machine import Machine
from cli.machine.smoke.runner import begin_anew, check_machine
from cli.machine.view import MachineView
from cli.terminal import LiveScreen, PlainScreen, Screen
from dataplane.errors import ConfigError
from dataplane.processes.child import StartError
from dataplane.processes.folder import locked
from dataplane.processes.ports import Ports

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLES = CHECKOUT / "deploy/examples"
FAILED = 1
REFUSED = 2


def add_parser(subparsers: Subparsers) -> None:
    """Add the `up` subcommand."""
    parser = subparsers.add_parser(
        "up",
        help="run everything with a simulated fleet on this machine",
        description="Run the control plane and all that it configures on this machine until Ctrl-C.",
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="run a gateway from this file alone, without a control plane (such as deploy/local.yaml)",
    )
    parser.add_argument(
        "--state-dir",
        type=Path,
        metavar="DIR",
        help="database, logs and generated files (default: .state in the checkout)",
    )
    parser.add_argument("--port", type=port, metavar="N", help="public port of the gateway; 0 = a free one")
    parser.add_argument(
        "--web-port",
        type=port,
        metavar="N",
        help=f"port of the control plane; 0 = a free one (default: {DEFAULT_WEB_PORT})",
    )
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
    """Run until stopped; 0 when it ran, 1 when a start or a check failed, 2 for what is asked wrongly."""
    screen: Screen = (
        LiveScreen() if sys.stdout.isatty() and not arguments.smoke else PlainScreen(output(arguments))
    )
    state = arguments.state_dir or CHECKOUT / (".state/smoke" if arguments.smoke else ".state")
    raise_file_limit()
    start = start_machine if arguments.config is None else start_gateway
    try:
        with locked(state.resolve()):
            code = start(arguments, state.resolve(), screen)
        screen.say("everything is stopped")
        return code
    except ConfigError as error:
        place = f"{arguments.config}: " if arguments.config else ""
        sys.stderr.write(f"pointsman up: error: {place}{error}\n")
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


def start_gateway(arguments: argparse.Namespace, state: Path, screen: Screen) -> int:
    """A gateway from one file."""
    if arguments.web_port is not None:
        raise ConfigError("there is no control plane with --config", path="--web-port")
    choose = Ports(random.SystemRandom())  # its ports are no other run's for as long as it is there
    plan = make_plan(adjusted(load(arguments.config), arguments), state, choose)

    async def watch(gateway: Gateway) -> int:
        await gateway.start()
        screen.busy("")
        screen.introduce(addresses(plan), tries(plan))
        await screen.watch(GatewayView(gateway))
        return 0

    async def check(gateway: Gateway) -> int:
        await gateway.start()
        return summarised(await run_checks(gateway, screen.say))

    async def main() -> int:
        gateway = Gateway(plan, screen.say, screen.busy)
        work = check(gateway) if arguments.smoke else watch(gateway)
        return await serve(gateway, work, screen, smoke=arguments.smoke)

    return asyncio.run(main())


def start_machine(arguments: argparse.Namespace, state: Path, screen: Screen) -> int:
    """Control plane and data plane."""
    default = 0 if arguments.smoke else DEFAULT_WEB_PORT
    web_port = default if arguments.web_port is None else arguments.web_port
    if arguments.smoke:
        begin_anew(state)
    choose = Ports(random.SystemRandom())
    layout = make_layout(state, web_port, choose, is_alone=arguments.smoke)
    gateway_port = 0 if arguments.smoke and arguments.port is None else arguments.port

    async def watch(machine: Machine) -> int:
        try:
            await machine.start()
        except BaseException:  # however it ends, nobody will see these again
            for line in secrets(machine.once):
                screen.say(line)
            raise
        screen.busy("")
        screen.introduce(introduction(machine), await machine_tries(machine))
        await screen.watch(MachineView(machine))
        return 0

    async def check(machine: Machine) -> int:
        await machine.start()
        return summarised(await check_machine(machine, screen.say))

    async def main() -> int:
        machine = Machine(layout, EXAMPLES, screen.say, screen.busy, choose=choose, port=gateway_port)
        work = check(machine) if arguments.smoke else watch(machine)
        return await serve(machine, work, screen, smoke=arguments.smoke)

    return asyncio.run(main())


def adjusted(config: LocalConfig, arguments: argparse.Namespace) -> LocalConfig:
    """Apply the flags to the file's content."""
    if arguments.smoke:
        config = with_free_ports(config)
    if arguments.port is not None:
        config = msgspec.structs.replace(
            config, gateway=msgspec.structs.replace(config.gateway, port=arguments.port)
        )
    return config


def summarised(summary: dict[str, Any]) -> int:
    """Print the summary of a smoke run and return the exit code."""
    print(json.dumps(summary, indent=2))
    return 0 if summary["result"] == "passed" else FAILED


class Runtime(Protocol):
    """What runs until it is left."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(self, *_: object) -> None: ...

    def kill(self) -> None:
        """End every process at once."""
        ...


async def serve(runtime: Runtime, doing: Coroutine[Any, Any, int], screen: Screen, *, smoke: bool) -> int:
    """Do the work until it ends or a signal comes; everything is stopped when this returns."""
    async with runtime:
        work = asyncio.create_task(doing)
        stop_on_signals(work, runtime, screen)
        try:
            return await work
        except asyncio.CancelledError:
            return FAILED if smoke else 0
        finally:
            screen.busy("")


def stop_on_signals(work: asyncio.Task[int], runtime: Runtime, screen: Screen) -> None:
    """Let the first signal end `work`, and a later one everything at once."""
    loop = asyncio.get_running_loop()

    def on_signal(name: str) -> None:
        if work.done() or work.cancelling():
            screen.say(f"{name} again: killing everything")
            runtime.kill()
        else:
            screen.say(f"{name}: stopping")
            work.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, on_signal, number.name)
