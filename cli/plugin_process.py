"""The subcommand of a process that has flags by Go's rules, a configuration, and plugins.

The flags are read by the process's own options module; the parser that argparse wants is given the same table
for its help, and hands every word on as it came. Beside serving there are `validate FILE...` and `schema`.
What serving, judging and describing need is imported when it is asked for, and not for the help.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cli.arguments import Parser, Subparsers
from dataplane.errors import ConfigError
from dataplane.flags import Flag

if TYPE_CHECKING:
    from dataplane.plugin.registry import PluginRegistry


@dataclass(frozen=True, kw_only=True)
class PluginProcess:
    """One process; ``package`` has `app.run`, `validate.validate`, `config_schema.print_schema`."""

    package: str
    """Also the subcommand's name."""
    help: str
    description: str
    flags: Sequence[Flag]
    parse_args: Callable[[Sequence[str]], Any]
    registry: str
    """Module with `plugin_registry`."""
    config: str
    """An EndpointPickerConfig, with its article."""
    others: str
    """What else can be judged."""
    folder: str
    """What a folder holds."""

    def add_parser(self, subparsers: Subparsers) -> None:
        """Add the parser."""
        name = self.package
        parser = subparsers.add_parser(name, help=self.help, description=self.description)
        parser.epilog = (
            f"'pointsman {name} validate FILE...' checks configurations without running anything; "
            f"'pointsman {name} schema' prints their JSON schema."
        )
        for flag in self.flags:
            default = f" (default {flag.default})" if flag.default else ""
            text = argparse.SUPPRESS if flag.removed else f"{flag.help}{default}"
            parser.add_argument(
                f"--{flag.name}", metavar=str(flag.kind).upper(), help=text.replace("%", "%%")
            )
        actions = {
            "validate": (self.validate_parser, self.run_validate),
            "schema": (self.schema_parser, self.run_schema),
        }

        def hand_on(args: Sequence[str] | None, _: object = None) -> tuple[argparse.Namespace, list[str]]:
            words = list(args or ())
            if words and words[0] in actions:
                own_parser, own_run = actions[words[0]]
                return argparse.Namespace(run=own_run, **vars(own_parser().parse_args(words[1:]))), []
            if any(word in {"-h", "--help"} for word in words):
                parser.print_help()
                raise SystemExit(0)
            return argparse.Namespace(run=self.run, words=words), []

        parser.parse_known_args = hand_on  # type: ignore[method-assign,assignment]  # the words are Go's

    def validate_parser(self) -> Parser:
        """Arguments of `validate`."""
        parser = Parser(
            prog=f"pointsman {self.package} validate",
            description="Check files as a start would, all mistakes at once; open nothing. "
            f"A file is {self.config}, or {self.others}.",
        )
        parser.add_argument(
            "files", nargs="+", metavar="FILE", help=f"YAML or JSON, or a folder of {self.folder}"
        )
        parser.add_argument("--show-defaults", action="store_true", help="print what each file comes to")
        parser.add_argument(
            "--allow-experimental-plugins", action="store_true", help="accept plugins of Alpha stability"
        )
        add_external_plugins(parser)
        return parser

    def schema_parser(self) -> Parser:
        """Arguments of `schema`."""
        parser = Parser(
            prog=f"pointsman {self.package} schema",
            description=f"Print the JSON Schema of {self.config} with the parameters of every plugin.",
        )
        add_external_plugins(parser)
        return parser

    def run(self, args: argparse.Namespace) -> int:
        """Serve until SIGTERM; return the exit code, 2 when it was asked wrongly."""
        name = self.package
        try:
            options = self.parse_args(args.words)
        except ConfigError as error:
            sys.stderr.write(
                f"pointsman {name}: error: {error}\nRun 'pointsman {name} --help' for what it takes.\n"
            )
            return 2
        code: int = import_module(f"{name}.app").run(options)
        return code

    def run_validate(self, args: argparse.Namespace) -> int:
        """Check the files; return 0 when all are accepted, 1 when not, 2 when a package is broken."""
        registry = self._registry(args)
        if registry is None:
            return 2
        code: int = import_module(f"{self.package}.validate").validate(
            args.files,
            sys.stdout,
            show_defaults=args.show_defaults,
            allow_experimental=args.allow_experimental_plugins,
            registry=registry,
        )
        return code

    def run_schema(self, args: argparse.Namespace) -> int:
        """Print the schema; return 0, or 2 when an installed package is broken."""
        registry = self._registry(args)
        if registry is None:
            return 2
        sys.stdout.write(import_module(f"{self.package}.config_schema").print_schema(registry))
        return 0

    def _registry(self, args: argparse.Namespace) -> "PluginRegistry | None":
        """The plugin types to judge by; None after saying which installed package is broken."""
        try:
            found: PluginRegistry = (
                import_module(self.registry)
                .plugin_registry(external=args.external_plugins == "true")
                .registry
            )
        except ConfigError as error:
            sys.stderr.write(f"pointsman {self.package}: error: {error}\n")
            return None
        return found


def add_external_plugins(parser: Parser) -> None:
    """Add the option."""
    parser.add_argument(
        "--external-plugins",
        choices=("true", "false"),
        default="true",
        help="whether plugins of installed packages are known (default true)",
    )
