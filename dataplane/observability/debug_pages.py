"""What debug pages of the processes share: JSON for people, numbers of a query, the state of plugins."""

from __future__ import annotations

import asyncio
import datetime
import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dataplane.plugin.base import Plugin
from dataplane.plugin.state import StateDumper

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger(__name__)


def index_of(doc: str | None) -> str:
    """The list of pages, which is the second paragraph of a module's docstring."""
    lines = (doc or "").split("\n\n")[1]
    return "\n".join(line.strip() for line in lines.splitlines()) + "\n"


def limit_of(request: web.Request, *, default: int, most: int, name: str = "limit") -> int:
    """The query's ``limit``, or another number, between 1 and ``most``; 400 when it is no number."""
    from aiohttp import web

    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise web.HTTPBadRequest(text=f"{name} must be a number from 1 to {most}\n")
    return max(1, min(int(text), most))


async def plugin_states(plugins: Mapping[str, Plugin]) -> dict[str, Any]:
    """What each plugin shows of its state; the loop turns in between."""
    now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    found: dict[str, Any] = {}
    for name, plugin in list(plugins.items()):
        found[name] = _state(plugin)
        await asyncio.sleep(0)
    return {"timestamp": now, "plugins": found}


def _state(plugin: Plugin) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": plugin.name.name, "type": plugin.name.type}
    if not isinstance(plugin, StateDumper):
        return shown | {"message": "keeps no state that it shows"}
    try:
        return shown | {"state": plugin.dump_state()}
    except Exception as error:  # one plugin's defect must not hide the state of the others
        log.exception("plugin %s cannot show its state", plugin.name)
        return shown | {"message": f"cannot show its state: {error}"}


def encoded(data: Any) -> bytes:
    """Indented JSON. Of text that is no Unicode, such as the name of a file, what is none becomes "?"."""
    try:
        raw = msgspec.json.encode(data, enc_hook=_plain)
    except UnicodeEncodeError:
        raw = json.dumps(data, default=_plain, ensure_ascii=False).encode("utf-8", "replace")
    return msgspec.json.format(raw, indent=2)


def json_page(data: Any, status: int = 200) -> web.StreamResponse:
    """An answer of JSON."""
    from aiohttp import web

    return web.Response(body=encoded(data) + b"\n", status=status, content_type="application/json")


def _plain(value: Any) -> Any:
    """Numbers of numpy as numbers, anything else as text: a debug page is better incomplete than absent."""
    item = getattr(value, "item", None)
    return item() if callable(item) and getattr(value, "ndim", None) == 0 else str(value)
