"""Which plugins the commands that judge and describe configurations know."""

import argparse
import sys
from typing import TYPE_CHECKING, Protocol

from cli.arguments import Parser
from dataplane.errors import ConfigError

if TYPE_CHECKING:
    from dataplane.plugin.entry_points import Installed
    from dataplane.plugin.registry import PluginRegistry


class MakeRegistry(Protocol):
    """A process's own function: its built-in plugins, and those of packages if wanted."""

    def __call__(self, *, external: bool) -> "Installed": ...


def add_external_plugins(parser: Parser) -> None:
    """Add the option."""
    parser.add_argument(
        "--external-plugins",
        choices=("true", "false"),
        default="true",
        help="whether plugins of installed packages are known (default true)",
    )


def registry_of(args: argparse.Namespace, command: str, make: MakeRegistry) -> "PluginRegistry | None":
    """The plugin types to judge by; None after saying which installed package is broken."""
    try:
        return make(external=args.external_plugins == "true").registry
    except ConfigError as error:
        sys.stderr.write(f"pointsman {command}: error: {error}\n")
        return None
