"""The `pointsman` command: one table of subcommands, each imported only when it is the one asked for.

A data-plane process must not pay for, or fail on, what another subcommand needs: `pointsman epp` loads
neither an HTTP client nor the load generator. A subcommand is a module with `add_parser(subparsers)`, which
adds its own parser and sets `run` on it (see `cli.arguments.Run`). Packages that only some subcommands need
are extras of the distribution; when one is missing the answer is the command that installs it.
"""

import importlib
import io
import os
import sys
from collections.abc import Sequence

from cli.arguments import Parser, suggestion

SUBCOMMANDS = {
    "up": ("cli.up", "run a whole gateway with a simulated fleet on this machine"),
    "epp": ("cli.epp", "run an Endpoint Picker for one pool"),
    "ipp": ("cli.ipp", "run a payload processor: guardrails, and which pool serves a body"),
    "explain": ("cli.explain", "show why a request goes where it does"),
    "sim": ("cli.sim", "run simulated model servers"),
    "bench": ("cli.bench", "measure the gateway"),
    "controlplane": ("cli.controlplane", "set up and run the control plane"),
    "apply": ("cli.documents", "create or change what documents describe, through the control plane"),
    "diff": ("cli.documents", "show what applying documents would change"),
    "export": ("cli.documents", "print everything the control plane holds as documents"),
    "get": ("cli.documents", "print objects of a kind, or one of them"),
    "key": ("cli.keys", "make, rotate or revoke the keys of tenants"),
    "rollout": ("cli.rollout", "bring a configuration to the pickers, step by step"),
    "guard": ("cli.guard", "try guardrail policies on a text or a corpus"),
    "version": ("cli.version", "print the version"),
}

FLAGS = ("--help", "--version")

OWN_PACKAGES = frozenset({"benchmarks", "cli", "controlplane", "dataplane", "epp", "ipp", "simulator"})

USAGE_ERROR = 2

READER_GONE = 128 + 13
"""As a shell reports a program that ended by SIGPIPE."""


def overview() -> str:
    """Return the text of `pointsman --help`; no subcommand is imported for it."""
    width = max(map(len, SUBCOMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in SUBCOMMANDS.items())
    return (
        "usage: pointsman SUBCOMMAND [FLAGS]\n\n"
        "LLM inference gateway: picks the model server that already holds the prompt's KV cache "
        "and has room.\n\n"
        f"subcommands:\n{rows}\n\n'pointsman SUBCOMMAND --help' shows the flags of one.\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code: 0 done, 1 failed, 2 asked wrongly."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files can be what no text can be
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough: head, or a pager. What is still buffered goes nowhere, silently.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    return code


def _run(arguments: Sequence[str]) -> int:
    if not arguments:
        sys.stderr.write(overview())
        return USAGE_ERROR
    name = {"--version": "version"}.get(arguments[0], arguments[0])
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(overview())
        return 0
    if name not in SUBCOMMANDS:
        kind, known = ("flag", FLAGS) if name.startswith("-") else ("subcommand", SUBCOMMANDS)
        sys.stderr.write(
            f"pointsman: error: unknown {kind} {name!r}{suggestion(name, known)}\n"
            "Run 'pointsman --help' for the list.\n"
        )
        return USAGE_ERROR
    try:
        return run_subcommand(name, arguments[1:])
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in OWN_PACKAGES:
            raise
        sys.stderr.write(
            f"pointsman {name}: error: the package {error.name.partition('.')[0]!r} is not installed\n"
            "Install what a one-machine set-up needs: pip install 'pointsman[local]' "
            "(in a checkout: pip install -e '.[local]', or run scripts/up).\n"
        )
        return 1


def run_subcommand(name: str, arguments: Sequence[str]) -> int:
    """Import the subcommand's module, let it parse its arguments, run it."""
    top = Parser(prog="pointsman")
    subparsers = top.add_subparsers(parser_class=Parser)
    importlib.import_module(SUBCOMMANDS[name][0]).add_parser(subparsers)
    namespace = top.parse_strictly([name, *arguments])
    code: int = namespace.run(namespace)
    return code


if __name__ == "__main__":
    sys.exit(main())
