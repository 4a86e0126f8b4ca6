"""Keeps the rings of this process filled from Valkey.

A thread, started by the first who looks and as daemon: it ends with the process. It begins with what the
stream still holds of the last fifteen minutes, so a restart of the web loses nothing. While Valkey is away it
tries again, and readers see the old points grow stale.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Final, TypeVar

import msgspec

from controlplane import valkey
from controlplane.telemetry.processors import Processors
from controlplane.telemetry.recent import WINDOW_S
from controlplane.telemetry.rings import Rings
from dataplane.telemetry.summary import (
    FIELD,
    MAX_SUMMARY_BYTES,
    PROCESSORS,
    STREAM,
    ProcessorSummary,
    Summary,
)

log = logging.getLogger(__name__)

BATCH: Final = 1000
BLOCK_MS: Final = 1000
FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 5.0

S = TypeVar("S")

PICKERS: Final = msgspec.json.Decoder(Summary)
OF_PROCESSORS: Final = msgspec.json.Decoder(ProcessorSummary)


class Feed:
    """Reads both streams into rings. One per address and process."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rings = Rings(time.time)
        self.processors = Processors(time.time)
        self._stopping = threading.Event()
        self._first = threading.Event()
        self._began = time.monotonic()
        began = f"{int((time.time() - WINDOW_S) * 1000)}-0"
        self._positions = {STREAM: began, PROCESSORS: began}
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
                with valkey.client(self.url) as client:
                    while not self._stopping.is_set():
                        self._read(client)
                        delay = 0.0
            except valkey.Unavailable as error:
                if not delay:
                    log.warning("no telemetry: Valkey: %s", error)
                delay = min(MAX_DELAY_S, max(FIRST_DELAY_S, 2 * delay))

    def _read(self, client: Any) -> None:
        answer = client.xread(dict(self._positions), count=BATCH, block=BLOCK_MS)
        most = 0
        for name, entries in answer:
            stream = name.decode()
            for entry, fields in entries:
                self._positions[stream] = entry.decode()
                self._add(stream, fields.get(FIELD, b""))
            most = max(most, len(entries))
        if most < BATCH:
            self._first.set()

    def _add(self, stream: str, payload: bytes) -> None:
        if stream == PROCESSORS:
            if (processor := read(payload, OF_PROCESSORS)) is not None:
                self.processors.add(processor)
        elif (picker := read(payload, PICKERS)) is not None:
            self.rings.add(picker)


def read(payload: bytes, decoder: msgspec.json.Decoder[S]) -> S | None:
    """A summary, or None for what is none: the next one comes in a second."""
    if len(payload) > MAX_SUMMARY_BYTES:
        return None
    try:
        return decoder.decode(payload)
    except ValueError:
        return None


_lock = threading.Lock()
_feed: Feed | None = None


def rings() -> Rings:
    """The pickers' of this process, being filled. ``ConfigError`` when no Valkey is configured."""
    return _running().rings


def processors() -> Processors:
    """The payload processors'."""
    return _running().processors


def _running() -> Feed:
    global _feed
    url = valkey.url()
    with _lock:
        if _feed is None or _feed.url != url:
            if _feed is not None:
                _feed.stop()
            _feed = Feed(url)
        feed = _feed
    feed.wait(FIRST_DELAY_S)
    return feed


def stop() -> None:
    """End the feed; the next who looks starts another."""
    global _feed
    with _lock:
        if _feed is not None:
            _feed.stop()
            _feed = None
