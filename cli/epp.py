"""`pointsman epp`: llm-d's flags to options, options to a running Endpoint Picker.

The flags follow Go's rules, so they are read by `epp.options`; the parser that argparse wants is given the
same table for its help, and hands every word on as it came.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from cli.arguments import Parser, Subparsers
from cli.go_flags import Action, add_flags
from cli.plugin_registries import add_external_plugins, registry_of
from dataplane.errors import ConfigError
from epp.options import FLAGS, parse_args

if TYPE_CHECKING:
    from dataplane.plugin.registry import PluginRegistry

DESCRIPTION = """Run an Endpoint Picker for one pool: an ext_proc service that names, for each request, the
model server that already holds most of the prompt in its KV cache and has room.

Flags and configuration files are those of llm-d's picker."""


def add_parser(subparsers: Subparsers) -> None:
    """Add the parser of `pointsman epp`."""
    parser = subparsers.add_parser("epp", help="run an Endpoint Picker for one pool", description=DESCRIPTION)
    parser.epilog = (
        "'pointsman epp validate FILE...' checks configurations without running anything; "
        "'pointsman epp schema' prints their JSON schema."
    )
    add_flags(parser, FLAGS, ACTIONS, run)


def validate_parser() -> Parser:
    """Arguments of `pointsman epp validate`."""
    parser = Parser(
        prog="pointsman epp validate",
        description="Check files as a start would, all mistakes at once; open nothing. A file is an "
        "EndpointPickerConfig, or holds objectives and model rewrites, or lists endpoints.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON, or a folder of objects")
    parser.add_argument("--show-defaults", action="store_true", help="print what each file comes to")
    parser.add_argument(
        "--allow-experimental-plugins", action="store_true", help="accept plugins of Alpha stability"
    )
    add_external_plugins(parser)
    return parser


def schema_parser() -> Parser:
    """Arguments of `pointsman epp schema`."""
    parser = Parser(
        prog="pointsman epp schema",
        description="Print the JSON Schema of an EndpointPickerConfig with the parameters of every plugin.",
    )
    add_external_plugins(parser)
    return parser


def _registry(args: argparse.Namespace) -> "PluginRegistry | None":
    from epp.graph.registry import plugin_registry

    return registry_of(args, "epp", plugin_registry)


def run_validate(args: argparse.Namespace) -> int:
    """Check the files; return 0 when all are accepted, 1 when not, 2 when an installed package is broken."""
    from epp.validate import validate  # the help needs none of what checking needs

    registry = _registry(args)
    if registry is None:
        return 2
    return validate(
        args.files,
        sys.stdout,
        show_defaults=args.show_defaults,
        allow_experimental=args.allow_experimental_plugins,
        registry=registry,
    )


def run_schema(args: argparse.Namespace) -> int:
    """Print the schema; return 0, or 2 when an installed package is broken."""
    from epp.config_schema import print_schema

    registry = _registry(args)
    if registry is None:
        return 2
    sys.stdout.write(print_schema(registry))
    return 0


ACTIONS: Final[Mapping[str, Action]] = {
    "validate": (validate_parser, run_validate),
    "schema": (schema_parser, run_schema),
}
"""What `pointsman epp` does besides serving: arguments and function of each word."""


def run(args: argparse.Namespace) -> int:
    """Run the picker until SIGTERM; return its exit code, 2 when it was asked wrongly."""
    try:
        options = parse_args(args.words)
    except ConfigError as error:
        sys.stderr.write(f"pointsman epp: error: {error}\nRun 'pointsman epp --help' for what it takes.\n")
        return 2
    from epp.app import run as serve  # the help needs none of what serving needs

    return serve(options)
