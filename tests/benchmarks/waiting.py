"""Waiting for what happens in the background."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Return when the condition holds; give up after some seconds."""
    for _ in range(5000):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")
