"""A request body on its way to a decision: its chunks, the cap on one body and the budget over all.

Chunks are kept as they came and joined once. The budget is charged for what a chunk costs in memory, not
only for its bytes, so that a body sent in tiny chunks cannot evade it.
"""

from __future__ import annotations

from typing import Final

from dataplane.errors import PayloadTooLargeError, RequestError, ServiceUnavailableError

CHUNK_OVERHEAD_BYTES: Final = 64
"""What a held chunk costs beside its bytes."""


class BodyBudget:
    """Bytes that all streams of one server may hold in collected bodies."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0


class CollectedBody:
    """The body of one request as far as it has come."""

    __slots__ = ("_budget", "_charged", "_chunks", "_max_bytes", "size")

    def __init__(self, max_bytes: int, budget: BodyBudget) -> None:
        self._max_bytes = max_bytes
        self._budget = budget
        self._chunks: list[bytes] = []
        self._charged = 0
        self.size = 0

    def add(self, chunk: bytes) -> RequestError | None:
        """Hold a chunk; what the client hears when that is more than one request or all may hold."""
        size = len(chunk)
        if not size:
            return None
        self._chunks.append(chunk)
        self.size += size
        charge = size + CHUNK_OVERHEAD_BYTES
        self._charged += charge
        budget = self._budget
        budget.used_bytes += charge
        if self.size > self._max_bytes:
            return self.too_large()
        if budget.used_bytes > budget.limit_bytes:
            return ServiceUnavailableError(
                "too many request bodies are being received at once; try again",
                dropped_reason="rejected-saturated",
            )
        return None

    def refuse_announced(self, content_length: int) -> RequestError | None:
        """The refusal that a body of this length would end in."""
        return self.too_large() if content_length > self._max_bytes else None

    def too_large(self) -> PayloadTooLargeError:
        """413 with the cap."""
        return PayloadTooLargeError(f"the request body is larger than the {self._max_bytes} bytes allowed")

    def whole(self) -> bytes:
        """All of it in one piece, which stays held."""
        chunks = self._chunks
        if len(chunks) == 1:
            return chunks[0]
        body = b"".join(chunks)
        self._chunks = [body] if body else []
        return body

    def release(self) -> None:
        """Let go of the bytes and give the budget back."""
        if self._charged:
            self._budget.used_bytes -= self._charged
            self._charged = 0
            self._chunks = []


def cut_short(size: int) -> PayloadTooLargeError:
    """The proxy shows less than the whole body."""
    return PayloadTooLargeError(
        f"the proxy passes on only the first {size} bytes of the request body, "
        "or the body ends in trailers; send a smaller one, with a content-length"
    )
