"""Keeps the rings of this process filled from Valkey.

A thread, started by the first who looks and as daemon: it ends with the process. It begins with what the
stream still holds of the last fifteen minutes, so a restart of the web loses nothing. While Valkey is away it
tries again, and readers see the old points grow stale.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final

import msgspec

from controlplane import valkey
from controlplane.telemetry.rings import WINDOW_S, Rings
from dataplane.telemetry.summary import FIELD, MAX_SUMMARY_BYTES, STREAM, Summary

log = logging.getLogger(__name__)

BATCH: Final = 1000
BLOCK_MS: Final = 1000
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 5.0

_decode = msgspec.json.Decoder(Summary).decode


class Feed:
    """Reads the stream into rings. One per address and process."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rings = Rings(time.time)
        self._stopping = threading.Event()
        self._first = threading.Event()
        self._began = time.monotonic()
        self._position = f"{int((time.time() - WINDOW_S) * 1000)}-0"
        self._thread = threading.Thread(target=self._run, name="telemetry feed", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Until what is there has been read for the first time, or so long after the start."""
        self._first.wait(max(0.0, self._began + seconds - time.monotonic()))

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        delay = 0.0
        while not self._stopping.wait(delay):
            try:
                with valkey.client() as client:
                    while not self._stopping.is_set():
                        self._read(client)
                        delay = 0.0
            except valkey.Unavailable as error:
                if not delay:
                    log.warning("no telemetry: Valkey: %s", error)
                delay = min(MAX_DELAY_S, max(FIRST_DELAY_S, 2 * delay))

    def _read(self, client: Any) -> None:
        answer = client.xread({STREAM: self._position}, count=BATCH, block=BLOCK_MS)
        entries = answer[0][1] if answer else []
        for entry, fields in entries:
            self._position = entry.decode()
            summary = read(fields.get(FIELD, b""))
            if summary is not None:
                self.rings.add(summary)
        if len(entries) < BATCH:
            self._first.set()


def read(payload: bytes) -> Summary | None:
    """A summary, or None for what is none: the next one comes in a second."""
    if len(payload) > MAX_SUMMARY_BYTES:
        return None
    try:
        return _decode(payload)
    except ValueError:
        return None


_lock = threading.Lock()
_feed: Feed | None = None


def rings() -> Rings:
    """The rings of this process, being filled. ``ConfigError`` when no Valkey is configured."""
    global _feed
    url = valkey.url()
    with _lock:
        if _feed is None or _feed.url != url:
            if _feed is not None:
                _feed.stop()
            _feed = Feed(url)
        feed = _feed
    feed.wait(FIRST_DELAY_S)
    return feed.rings


def stop() -> None:
    """End the feed; the next who looks starts another."""
    global _feed
    with _lock:
        if _feed is not None:
            _feed.stop()
            _feed = None
