"""`pointsman version`: which release this is and which Python runs it."""

import argparse
import platform
from importlib.metadata import version

from cli.arguments import Subparsers


def add_parser(subparsers: Subparsers) -> None:
    """Add the `version` subcommand."""
    parser = subparsers.add_parser("version", help="print the version")
    parser.set_defaults(run=run)


def run(_: argparse.Namespace) -> int:
    """Print one line: the version and the interpreter's version."""
    print(f"pointsman {version('pointsman')} (Python {platform.python_version()})")
    return 0
