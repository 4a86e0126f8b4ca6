"""Telemetry over a websocket: what is known when it opens, and then what is new, once a second.

A program shows its token in the header ``Authorization``; a browser is known by its session, and then it must
come from a page of ours (``Origin``). The role viewer is enough.

Nothing is queued for a client: when a message has gone out, the next one is made of what is known by then, so
whoever reads slowly gets fewer messages and never an old one. The number of clients of a process has a cap.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from asgiref.sync import sync_to_async
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist
from django.http.request import validate_host

from controlplane.core import tokens
from controlplane.core.roles import Action, Actor, Channel, Role
from controlplane.telemetry.api import TELEMETRY, known
from controlplane.telemetry.rings import WINDOW_S
from controlplane.telemetry.tellings import TELLINGS, Telling

PERIOD_S: Final = 1.0
MAX_CLIENTS: Final = 200
DEFAULT_SECONDS: Final = 120
ROLE_CHECKED_EVERY: Final = 30
"""Messages between two looks at whether the caller may still see them."""

UNAUTHENTICATED: Final = 4401
FORBIDDEN: Final = 4403
BAD_REQUEST: Final = 4400
TOO_MANY: Final = 4429
NOT_CONFIGURED: Final = 4503
"""Codes a websocket is closed with."""

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class Clients:
    """How many there are in this process."""

    def __init__(self) -> None:
        self.count = 0


CLIENTS: Final = Clients()


class TelemetryConsumer(AsyncWebsocketConsumer):
    """``/ws/telemetry?pool=NAME&seconds=N&view=charts``; without a pool, all of them.

    The view ``charts`` tells columns of values (``controlplane.telemetry.columns``) instead of points,
    workers and endpoints: what a page draws.
    """

    channel_layer_alias = ""
    """None: nobody sends to one client of these, and a layer's own time-outs would end the connection."""

    _task: asyncio.Task[None] | None = None
    _is_counted = False

    async def connect(self) -> None:
        """Accept whoever may look; others learn the reason from the code the socket is closed with."""
        await self.accept()
        actor = await self._actor()
        query = parse_qs(self.scope.get("query_string", b"").decode("latin-1"))
        pool, text = query.get("pool", [""])[0], query.get("seconds", [str(DEFAULT_SECONDS)])[0]
        view = query.get("view", [""])[0]
        code = 0
        if actor is None:
            code = UNAUTHENTICATED
        elif not actor.may(Action.READ, TELEMETRY):
            code = FORBIDDEN
        elif view not in TELLINGS or not _is_within(text):
            code = BAD_REQUEST
        elif CLIENTS.count >= MAX_CLIENTS:
            code = TOO_MANY
        rings = None if code else await sync_to_async(known, thread_sensitive=False)()
        if rings is None:
            await self.close(code or NOT_CONFIGURED)
            return
        CLIENTS.count += 1
        self._is_counted = True
        self._task = asyncio.create_task(
            self._tell(TELLINGS[view](rings, pool, int(text))), name="telemetry client"
        )

    async def disconnect(self, code: int) -> None:
        """Stop telling."""
        if self._is_counted:
            self._is_counted = False
            CLIENTS.count -= 1
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Clients have nothing to say."""

    async def _tell(self, telling: Telling) -> None:
        try:
            # Fifteen minutes of many workers take a while to put together.
            await self._say("snapshot", await sync_to_async(telling.snapshot, thread_sensitive=False)())
            messages = 0
            while True:
                await asyncio.sleep(PERIOD_S)
                messages += 1
                if messages % ROLE_CHECKED_EVERY == 0 and not await self._may_look():
                    await self.close(FORBIDDEN)
                    return
                await self._say("delta", telling.delta())
        except OSError:  # the client is gone; ``disconnect`` is called for the rest
            log.debug("a client of telemetry went away")

    async def _may_look(self) -> bool:
        actor = await self._actor()
        return actor is not None and actor.may(Action.READ, TELEMETRY)

    async def _say(self, kind: str, said: dict[str, Any]) -> None:
        await self.send(text_data=_encode({"type": kind, **said}).decode())

    async def _actor(self) -> Actor | None:
        """Who asks: by token, or by session from a page of ours."""
        headers = dict(self.scope.get("headers", ()))
        scheme, _, text = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme:
            if scheme.lower() != "bearer" or not text:
                return None
            found = await database_sync_to_async(tokens.recognise)(text.strip(), Channel.API)
            return None if found is None else found[1]
        user: Any = self.scope.get("user")
        if user is None or not user.is_authenticated or not _is_ours(headers.get(b"origin", b"")):
            return None
        try:
            await user.arefresh_from_db(fields=["role", "is_active"])
        except ObjectDoesNotExist:
            return None
        return Actor(user.username, Role(user.role), Channel.CONSOLE, user.pk) if user.is_active else None


def _is_within(seconds: str) -> bool:
    """Whether it is a number of seconds that are kept."""
    return seconds.isascii() and seconds.isdigit() and len(seconds) < 5 and int(seconds) <= WINDOW_S


def _is_ours(origin: bytes) -> bool:
    """Whether a page of this control plane opened the socket."""
    try:
        host = urlsplit(origin.decode("latin-1")).hostname
    except ValueError:
        return False
    if host is None:
        return False
    return validate_host(f"[{host}]" if ":" in host else host, settings.ALLOWED_HOSTS)
