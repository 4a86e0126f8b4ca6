"""What the user of `pointsman up` sees: progress, the state of things while they run, and what to try.

On a terminal a table is redrawn in place once a second; elsewhere there are plain lines. Each thing gets one
at once when something decisive about it changes, and otherwise at most every 30 s and only when its text has
changed, so that a log of a quiet night stays short.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple, Protocol, TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape

REFRESH_S = 1.0
PLAIN_EVERY_S = 30.0

Try = tuple[str, str]
"""What it shows, and the command."""


class Line(NamedTuple):
    """One thing in one line."""

    name: str
    text: str
    decisive: object
    """A change of this is told at once."""


class View(Protocol):
    """The state of things."""

    async def look(self) -> None:
        """Ask how things are."""
        ...

    def lines(self) -> Sequence[Line]:
        """As plain text, as they were at the last look."""
        ...

    def table(self) -> RenderableType:
        """For a terminal."""
        ...


class Screen(Protocol):
    """Where everything is said."""

    def say(self, text: str) -> None:
        """Tell one event."""
        ...

    def busy(self, what: str) -> None:
        """Tell what is being waited for; nothing when empty."""
        ...

    def introduce(self, addresses: str, tries: Sequence[Try]) -> None:
        """Say where everything is and what to try."""
        ...

    async def watch(self, view: View) -> None:
        """Show the state of things until cancelled."""
        ...


class PlainScreen:
    """Lines of text with the time in front."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def say(self, text: str) -> None:
        """Write one line."""
        self._stream.write(f"{time.strftime('%H:%M:%S')} {text}\n")
        self._stream.flush()

    def busy(self, what: str) -> None:
        """Say nothing: the line that it is ready will do."""

    def introduce(self, addresses: str, tries: Sequence[Try]) -> None:
        """List the addresses and the commands."""
        lines = [f"{line}\n" for what, command in tries for line in (f"# {what}", command)]
        self._stream.write(f"\n{addresses}\n\n{''.join(lines)}\n")
        self._stream.flush()

    async def watch(self, view: View) -> None:
        """Write each line when it is due."""
        due: defaultdict[str, LineDue] = defaultdict(LineDue)
        while True:
            await view.look()
            for line in view.lines():
                if due[line.name].is_due(line, time.monotonic()):
                    self.say(line.text)
            await asyncio.sleep(REFRESH_S)


class LineDue:
    """Decides when the plain line of one thing is due."""

    def __init__(self) -> None:
        self._shown: Line | None = None
        self._shown_at_s = 0.0

    def is_due(self, line: Line, now_s: float) -> bool:
        """Tell whether to show a line now; if so, it counts as shown."""
        shown = self._shown
        is_early = now_s - self._shown_at_s < PLAIN_EVERY_S
        if shown and line.decisive == shown.decisive and (is_early or line.text == shown.text):
            return False
        self._shown, self._shown_at_s = line, now_s
        return True


class LiveScreen:
    """A terminal: events scroll by, the table stays below them."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._spinner = self._console.status("")

    def say(self, text: str) -> None:
        """Print one event above the table."""
        ready, _, rest = text.partition("ready: ")
        shown = f"[green]✓[/] {escape(rest)}" if rest and not ready else escape(text)
        self._console.print(f"[dim]{time.strftime('%H:%M:%S')}[/] {shown}", soft_wrap=True)

    def busy(self, what: str) -> None:
        """Turn a spinner below the lines."""
        if what:
            self._spinner.update(f"waiting for: {escape(what)}")
            self._spinner.start()
        else:
            self._spinner.stop()

    def introduce(self, addresses: str, tries: Sequence[Try]) -> None:
        """Print the addresses and the commands."""
        self._console.print(f"\n{escape(addresses)}\n", soft_wrap=True)
        for what, command in tries:
            self._console.print(f"[dim]# {escape(what)}[/]", soft_wrap=True)
            self._console.print(escape(command), soft_wrap=True)
        self._console.print()

    async def watch(self, view: View) -> None:
        """Redraw the table every second."""
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                await view.look()
                live.update(view.table(), refresh=True)
                await asyncio.sleep(REFRESH_S)
