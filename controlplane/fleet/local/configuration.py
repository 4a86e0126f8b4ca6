"""The file a picker follows its configuration in: it holds what is known to run, but for a moment of trying.

A picker goes on with its old configuration when it refuses a new one, but could not start with it. So a new
text is written only under a picker that serves, and taken back unless that picker says it runs it; a copy of
the last text that ran is what every start begins with. The empty text is the picker's built-in default.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dataplane.processes.folder import write_atomically
from epp.reload import revision_of

CONFIG: Final = "picker.yaml"
GOOD: Final = "picker.good.yaml"
DEFAULT: Final = ""
ENDED: Final = "the picker ended while it took this configuration"


class ConfigFile:
    """One pool's file. Writing blocks on the file system and may raise ``OSError``."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / CONFIG
        self._copy = folder / GOOD
        try:
            self._good = self._copy.read_text()
        except (OSError, UnicodeDecodeError):
            self._good = DEFAULT
        self._trying: str | None = None
        self._pid = 0
        """The picker that tries."""
        self._refused: tuple[str, list[str]] | None = None
        self._is_written = False

    @property
    def is_trying(self) -> bool:
        """Whether a picker has been given a text and has not said yet what became of it."""
        return self._trying is not None

    def prepare(self, pid: int | None) -> None:
        """Have a file that a picker can start with; ``pid`` is the one that runs, if any."""
        if self._trying is not None and pid != self._pid:
            self._refuse([ENDED])
        if not self._is_written:
            write_atomically(self.path, self._good)
            self._is_written = True

    def offer(self, text: str, pid: int) -> None:
        """Give the picker that serves another text, unless it runs or has refused that one."""
        if self._trying is not None or text == self._good:
            return
        if self._refused is not None and self._refused[0] == text:
            return
        write_atomically(self.path, text)
        self._trying, self._pid = text, pid

    def judge(self, running: str, refused: str, problems: Sequence[str]) -> None:
        """What the picker says of its configuration: the revisions it runs and has refused last, and why."""
        if self._trying is None:
            return
        tried = revision_of(self._trying.encode())
        if running == tried:
            write_atomically(self._copy, self._trying)
            self._good, self._trying, self._refused = self._trying, None, None
        elif refused == tried and problems:
            self._refuse(list(problems))

    def verdict(self, text: str) -> list[str] | None:
        """Why a text is refused, nothing when it runs, None as long as that is not known."""
        if self._refused is not None and self._refused[0] == text:
            return self._refused[1]
        return [] if text == self._good and self._trying is None else None

    def _refuse(self, problems: list[str]) -> None:
        """Take the text back."""
        write_atomically(self.path, self._good)
        if self._trying is not None:
            self._refused = (self._trying, problems)
        self._trying = None
