"""Argument parsing that refuses what it does not know and names the nearest thing it does.

A flag that is silently ignored, or taken for another because it shares a prefix, changes how a gateway
behaves without anybody noticing; so abbreviations are off and every unknown word ends the program with exit
code 2.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn, TypeAlias

Subparsers: TypeAlias = "argparse._SubParsersAction[Parser]"
"""What `add_parser` of a subcommand's module gets: the place where it adds its own parser."""

Run = Callable[[argparse.Namespace], int]
"""What a subcommand stores as `run`: it gets the parsed arguments and returns the exit code."""


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean "x"?)` for the nearest known word, or an empty string when none is near."""
    from dataplane.errors import did_you_mean  # only a mistake pays for loading the data plane's errors

    return did_you_mean(word, known)


class Parser(argparse.ArgumentParser):
    """`ArgumentParser` without abbreviations, whose complaints carry a suggestion and the way to the help."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        kwargs.setdefault("allow_abbrev", False)
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # argparse's own signature, passed through

    def parse_strictly(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse `argv`; what is left over is refused by the subcommand whose flags the user meant."""
        namespace, left_over = self.parse_known_args(argv)
        if left_over:
            self.meant_by(argv).refuse(left_over[0])
        return namespace

    def meant_by(self, argv: Sequence[str]) -> "Parser":
        """Return the parser of the innermost subcommand that `argv` names."""
        parser = self
        for word in argv:
            parser = parser.children().get(word, parser)
        return parser

    def children(self) -> Mapping[str, "Parser"]:
        """Return the parsers of this parser's subcommands by name."""
        if self._subparsers is None:
            return {}
        return next(
            action.choices
            for action in self._subparsers._group_actions
            if isinstance(action, argparse._SubParsersAction)
        )

    def refuse(self, word: str) -> NoReturn:
        """End the program because of `word`, an argument this parser does not know."""
        if not word.startswith("-"):
            self.error(f"unexpected argument {word!r}")
        flag = word.partition("=")[0]
        self.error(f"unknown flag {flag}{suggestion(flag, self._option_string_actions)}")

    def error(self, message: str) -> NoReturn:
        """Print the complaint in one line, without the usage text that would push it off the screen."""
        sys.stderr.write(f"{self.prog}: error: {message}\nRun '{self.prog} --help' for what it takes.\n")
        raise SystemExit(2)
