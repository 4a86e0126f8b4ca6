"""`pointsman sim`: flags to options, options to a running fleet, until a signal ends it.

The flags are those of the options table, so that flag, file and reference cannot differ. What speaks HTTP is
loaded only when the fleet starts.
"""

import argparse
import asyncio
import gc
import resource
import signal
import sys
import typing
from typing import TYPE_CHECKING, Any

import msgspec

from cli.arguments import Subparsers
from dataplane.addresses import host_port
from simulator.options import OptionsError, SimOptions, load_options

if TYPE_CHECKING:
    from simulator.app import Fleet

DESCRIPTION = """Run model servers that behave like vLLM from outside: OpenAI endpoints, vllm:* metrics,
continuous batching, a KV cache that shortens the time to first token when it holds the prompt."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the parser of `pointsman sim`."""
    parser = subparsers.add_parser("sim", help="run simulated model servers", description=DESCRIPTION)
    parser.add_argument("--config", default="", metavar="FILE", help="YAML file of options, flags win")
    for field in msgspec.structs.fields(SimOptions):
        parser.add_argument(f"--{field.encode_name}", **_argument(field))
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the fleet until SIGINT or SIGTERM; return 0 when it ran, 1 when it cannot, 2 when asked wrongly."""
    flags = {
        field.encode_name: getattr(args, field.name)
        for field in msgspec.structs.fields(SimOptions)
        if hasattr(args, field.name)
    }
    try:
        options = load_options(args.config, flags)
    except OptionsError as error:
        sys.stderr.write(f"pointsman sim: error: {error}\nRun 'pointsman sim --help' for what it takes.\n")
        return 2
    try:
        _serve(options)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"pointsman sim: error: {place}{error.strerror or error}\n")
        return 1
    return 0


def _argument(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    """Return what argparse needs to know of one option."""
    kind, *extras = typing.get_args(field.type)
    text = next(extra.description for extra in extras if extra.description)
    default = field.default if field.default is not msgspec.NODEFAULT else ""
    shown = f" (default {default})" if default not in {"", None} else ""
    argument: dict[str, Any] = {"help": (text + shown).replace("%", "%%"), "default": argparse.SUPPRESS}
    if typing.get_origin(kind) is list:
        argument |= {"nargs": "+", "action": "extend", "metavar": "TEXT"}
    elif kind is bool:
        argument |= {"nargs": "?", "const": "true", "metavar": "true|false"}
    else:
        argument["metavar"] = _metavar(kind)
    return argument


def _metavar(kind: Any) -> str:
    parts = [part for part in typing.get_args(kind) if part is not type(None)] or [kind]
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(str(part) for part in parts if part != "")
    return {int: "N", float: "X", str: "TEXT"}.get(_plain(parts[0]), "DURATION")


def _plain(kind: Any) -> Any:
    """Return the type without its annotations."""
    return typing.get_args(kind)[0] if hasattr(kind, "__metadata__") else kind


def _serve(options: SimOptions) -> None:
    import uvloop  # the help needs no event loop

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.run(_run_until_signal(options))


async def _run_until_signal(options: SimOptions) -> None:
    from simulator.app import Fleet  # loads the HTTP server

    fleet = Fleet(options)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    await fleet.start()
    gc.collect()
    gc.freeze()
    sys.stdout.write(_announcement(fleet))
    sys.stdout.flush()
    try:
        await ended.wait()
    finally:
        await fleet.stop()


def _announcement(fleet: "Fleet") -> str:
    first, last = fleet.replicas[0], fleet.replicas[-1]
    where = host_port(first.address, first.port)
    if last is not first:
        where += f" to {host_port(last.address, last.port)}"
    lines = [f"{len(fleet.replicas)} replicas of {fleet.options.model} listen on {where}"]
    if fleet.admin_port:
        lines.append(f"admin: http://{host_port(first.address, fleet.admin_port)}/replicas")
    if fleet.options.endpoints_file:
        lines.append(f"endpoints: {fleet.options.endpoints_file}")
    return "\n".join(lines) + "\n"
