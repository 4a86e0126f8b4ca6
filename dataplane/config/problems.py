"""Everything wrong with a document, reported at once.

Reading a configuration never stops at the first mistake: each reader appends to a list of problems and goes
on with what it can make sense of, so that one run shows everything there is to mend.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataplane.errors import ConfigError

MAX_PROBLEMS: Final = 200
"""Problems told of one document; a longer list is a wrong file rather than so many mistakes."""


class ConfigErrors(ConfigError):
    """All problems of one document up to ``MAX_PROBLEMS``, in the order they were found; never empty."""

    def __init__(self, errors: Sequence[ConfigError], source: str = "") -> None:
        """``source``: the flag that named the documents; empty = the configuration's."""
        self.source = source
        self.errors = list(errors[:MAX_PROBLEMS])
        if len(errors) > len(self.errors):
            self.errors.append(ConfigError("there are more mistakes; mend these first"))
        if len(self.errors) == 1:
            super().__init__(self.errors[0].message, path=self.errors[0].path)
        else:
            lines = "\n".join(f"  - {error}" for error in self.errors)
            super().__init__(f"{len(self.errors)} problems:\n{lines}")


def each_of(error: ConfigError) -> Sequence[ConfigError]:
    """The problems that an error stands for."""
    return error.errors if isinstance(error, ConfigErrors) else (error,)


def raise_any(problems: Sequence[ConfigError]) -> None:
    """Raise ``ConfigErrors`` when there is at least one problem."""
    if problems:
        raise ConfigErrors(problems)
