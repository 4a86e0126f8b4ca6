"""A server that renders prompts, for pickers that ask one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Renderer:
    """A server that renders every prompt as so many tokens, or does not."""

    def __init__(self) -> None:
        self.tokens = 500
        self.status = 200
        self.hangs = False
        self.takes_s = 0.0
        self.asked: list[tuple[str, Any]] = []
        self.url = ""

    async def render(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, await request.json()))
        await asyncio.sleep(self.takes_s)
        while self.hangs:  # noqa: ASYNC110 - a plain flag is what tests flip
            await asyncio.sleep(0.02)
        prompt = {"token_ids": list(range(self.tokens)), "features": None}
        is_list = not request.path.startswith("/v1/chat")
        return web.json_response([prompt] if is_list else prompt, status=self.status)


@asynccontextmanager
async def rendering() -> AsyncIterator[Renderer]:
    """One on a free port."""
    renderer = Renderer()
    app = web.Application()
    app.router.add_post("/{path:.*}", renderer.render)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        renderer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield renderer
    finally:
        renderer.hangs = False
        await runner.cleanup()
