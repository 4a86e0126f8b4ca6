"""Parsers of subcommands whose flags follow Go's rules and are read by the process itself."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from cli.arguments import Parser
from dataplane.flags import Flag

Action: TypeAlias = tuple[Callable[[], Parser], Callable[[argparse.Namespace], int]]


def add_flags(
    parser: argparse.ArgumentParser,
    flags: Sequence[Flag],
    actions: Mapping[str, Action],
    run: Callable[[argparse.Namespace], int],
) -> None:
    """Show the flags in the parser's help, and hand every word on as it came.

    ``actions`` are what the subcommand does besides serving: arguments and function by the first word.
    """
    for flag in flags:
        default = f" (default {flag.default})" if flag.default else ""
        text = argparse.SUPPRESS if flag.removed else f"{flag.help}{default}"
        parser.add_argument(f"--{flag.name}", metavar=str(flag.kind).upper(), help=text.replace("%", "%%"))

    def hand_on(args: Sequence[str] | None, _: object = None) -> tuple[argparse.Namespace, list[str]]:
        words = list(args or ())
        if words and words[0] in actions:
            own_parser, own_run = actions[words[0]]
            return argparse.Namespace(run=own_run, **vars(own_parser().parse_args(words[1:]))), []
        if any(word in {"-h", "--help"} for word in words):
            parser.print_help()
            raise SystemExit(0)
        return argparse.Namespace(run=run, words=words), []

    parser.parse_known_args = hand_on  # type: ignore[method-assign,assignment]  # the words are Go's, see above
