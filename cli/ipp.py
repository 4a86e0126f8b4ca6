"""`pointsman ipp`: llm-d's flags to options, options to a running payload processor.

The flags follow Go's rules, so they are read by `ipp.options`; the parser that argparse wants is given the
same table for its help, and hands every word on as it came.
"""

import argparse
import sys
from collections.abc import Sequence

from cli.arguments import Subparsers
from cli.go_flags import add_flags
from dataplane.errors import ConfigError
from ipp.options import FLAGS, parse_args

DESCRIPTION = """Run a payload processor: an ext_proc service before routing that reads and checks requests
and answers, and names the pool that serves a request's model.

Flags and configuration files are those of llm-d's processor."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the parser of `pointsman ipp`."""
    parser = subparsers.add_parser("ipp", help="run a payload processor", description=DESCRIPTION)
    add_flags(parser, FLAGS, {}, run)


def run(args: argparse.Namespace) -> int:
    """Run the processor until SIGTERM; return its exit code, 2 when it was asked wrongly."""
    words: Sequence[str] = args.words
    try:
        options = parse_args(words)
    except ConfigError as error:
        sys.stderr.write(f"pointsman ipp: error: {error}\nRun 'pointsman ipp --help' for what it takes.\n")
        return 2
    from ipp.app import run as serve  # the help needs none of what serving needs

    return serve(options)
