"""What can be done to a replica: change its speed and failures, kill, hang and revive it.

The same actions are offered by each replica under `/admin/` and, for all of them, by the fleet's admin port.
"""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from simulator.errors import ApiError
from simulator.options import OptionsError, describe
from simulator.wire import decode, decoder

if TYPE_CHECKING:
    from simulator.replica import Replica

ACTIONS = {"config": ("GET", "POST"), "kill": ("POST",), "hang": ("POST",), "revive": ("POST",)}


class NoFields(msgspec.Struct, forbid_unknown_fields=True):
    """Body of an action without parameters."""


class HangRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Body of `hang`: for how long; null is until revived, 0 ends it."""

    seconds: Annotated[float, Meta(ge=0)] | None = None


_no_fields = decoder(NoFields)
_hang_body = decoder(HangRequest)
_changes: msgspec.json.Decoder[dict[str, Any]] = decoder(dict[str, Any])


async def perform(
    replica: "Replica", method: str, action: str, body: bytes, spare: asyncio.BaseTransport | None = None
) -> bytes:
    """Do `action` and return the JSON to answer; ApiError when it is unknown, malformed or impossible.

    `spare` is the connection the request came on, if it is one of the replica's.
    """
    if action not in ACTIONS:
        raise ApiError(404, f"unknown action {action[:40]!r}; there are {', '.join(ACTIONS)}")
    if method not in ACTIONS[action]:
        raise ApiError(405, f"{action}: use {' or '.join(ACTIONS[action])}")
    body = body.strip() or b"{}"
    if action == "config":
        return _config(replica, body if method == "POST" else None)
    if action == "hang":
        replica.hang(decode(body, _hang_body).seconds)
    else:
        decode(body, _no_fields)
        await (replica.kill(spare) if action == "kill" else _revive(replica))
    return msgspec.json.encode(status(replica))


def status(replica: "Replica") -> dict[str, object]:
    """Return what the list of replicas shows of one."""
    engine = replica.server.engine
    alive = replica.state != "killed"
    return {
        "name": replica.name,
        "address": replica.address,
        "port": replica.port,
        "state": replica.state,
        "running": len(engine.running) if alive else 0,
        "waiting": len(engine.waiting) if alive else 0,
        "kv_cache_usage": engine.cache.used / engine.cache.capacity if alive else 0.0,
        "metrics_asked": replica.server.metrics_asked if alive else 0,
    }


def _config(replica: "Replica", body: bytes | None) -> bytes:
    if body is None:
        return msgspec.json.encode(describe(replica.server.runtime))
    try:
        changes = decode(body, _changes)
        runtime = replica.server.change_runtime(changes)
        return msgspec.json.encode(describe(runtime))
    except OptionsError as error:
        raise ApiError(400, str(error)) from error


async def _revive(replica: "Replica") -> None:
    try:
        await replica.revive()
    except OSError as error:
        raise ApiError(409, str(error)) from error
