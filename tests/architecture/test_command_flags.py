"""Every flag of the Endpoint Picker is in its reference, and the reference names no other."""

import argparse
import importlib
import importlib.util
import re

from cli.arguments import Parser
from tests.architecture.tree import ROOT

PAGE = ROOT / "docs/reference/epp-flags.md"


def flags() -> set[str]:
    """Long flags of `pointsman epp`; flags that exist only to be refused are hidden from the help."""
    if importlib.util.find_spec("cli.epp") is None:
        return set()
    subparsers = Parser(prog="pointsman").add_subparsers(parser_class=Parser)
    importlib.import_module("cli.epp").add_parser(subparsers)
    actions = subparsers.choices["epp"]._actions
    shown = (action for action in actions if action.help != argparse.SUPPRESS and action.dest != "help")
    return {flag for action in shown for flag in action.option_strings if flag.startswith("--")}


def test_reference_lists_exactly_the_flags():
    documented = set(re.findall(r"^\| `(--[\w-]+)`", PAGE.read_text() if PAGE.exists() else "", re.MULTILINE))
    assert documented == flags()
