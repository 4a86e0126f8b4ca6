"""How a picker fares, by its own pages: whether it is ready, and what it sees of its endpoints."""

from __future__ import annotations

import json
from typing import Any, Final

import aiohttp
import msgspec

from controlplane.fleet.endpoints import Seen, seen_in
from controlplane.fleet.local.counts import Counts, read_counts
from dataplane.processes.ports import LOOPBACK

TIMEOUT_S: Final = 2.0
MAX_ANSWER_BYTES: Final = 16 << 20
MAX_ENDPOINTS: Final = 10_000
"""Of one picker that are written down."""
MAX_ENDPOINTS_SHOWN: Final = 100
MAX_PROBLEMS: Final = 10
"""Of those that the picker tells of its endpoints."""

_SHOWN: Final = (
    *("name", "namespace", "address", "rank", "fresh", "listens", "problem", "dataAgeMs"),
    *("waiting", "running", "kvUsage", "inflight", "ejection", "share"),
)
"""What of an endpoint is reported: health and load."""


class Probe(msgspec.Struct, frozen=True):
    """One look at a picker."""

    is_ready: bool = False
    endpoints: dict[str, Any] | None = None
    """total, fresh, truncated, items; None when the picker does not tell."""
    seen: list[Seen] | None = None
    """All of them; None when the picker does not tell."""
    problems: list[str] = []
    running: str = ""
    """What the picker calls the configuration that runs, if asked for."""
    counts: Counts | None = None
    """Requests and errors, if asked for."""


async def probe(session: aiohttp.ClientSession, metrics_port: int, *, with_counts: bool) -> Probe:
    """Ask the picker at this port; an empty answer when it gives none."""
    base = f"http://{LOOPBACK}:{metrics_port}"
    endpoints = f"{base}/debug/endpoints?limit={MAX_ENDPOINTS}"
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with session.get(f"{base}/readyz", timeout=timeout) as answer:
            is_ready = answer.status == 200
        async with session.get(endpoints, timeout=timeout) as answer:
            page = await _read(answer.content)
        problems = [str(text) for text in page["discoveryProblems"][:MAX_PROBLEMS]]
        running, counts = "", None
        if with_counts:
            # First what runs: what is counted under another name is not told.
            async with session.get(f"{base}/debug/config", timeout=timeout) as answer:
                running = str((await _read(answer.content))["reload"]["revision"])
            async with session.get(f"{base}/metrics", timeout=timeout) as answer:
                counts = read_counts((await _body(answer.content)).decode(errors="replace"))
        return Probe(
            is_ready,
            _endpoints(page),
            [seen_in(row) for row in page["endpoints"][:MAX_ENDPOINTS]],
            problems,
            running,
            counts,
        )
    except (aiohttp.ClientError, TimeoutError):
        return Probe()
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return Probe()  # whatever answers there is no picker


async def _read(content: aiohttp.StreamReader) -> dict[str, Any]:
    found = json.loads(await _body(content))
    return found if isinstance(found, dict) else {}


async def _body(content: aiohttp.StreamReader) -> bytes:
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise ValueError("too large")
    return bytes(body)


def _endpoints(page: dict[str, Any]) -> dict[str, Any]:
    rows = page["endpoints"][:MAX_ENDPOINTS_SHOWN]
    return {
        "total": page["total"],
        "fresh": page["fresh"],
        "truncated": page["total"] > len(rows),
        "items": [{name: row.get(name) for name in _SHOWN} for row in rows],
    }
