"""What the processes a benchmark starts from this package have in common: the loop, and ending with it.

Such a process is told what to do in lines on stdin and answers in lines on stdout. When the benchmark goes
away, however it does, stdin ends and so does the process.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

import uvloop


def run_on_uvloop(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` to its end; Ctrl-C in the terminal is the benchmark's to handle."""
    try:
        uvloop.run(main)
    except KeyboardInterrupt:
        return


async def commands() -> asyncio.StreamReader:
    """Stdin as a stream of lines."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def end_with_parent() -> None:
    """Return when stdin ends."""
    await (await commands()).read()
