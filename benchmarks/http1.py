"""Message boundaries of HTTP/1.1 on one connection, for the upstream and the load generator.

Both must be cheap, because they share the machine with what is measured, and neither needs the content of a
body: only where each message ends and how long its body was. This is no general parser: it trusts its peer,
which is Envoy, and refuses what Envoy does not send.
"""

from typing import NamedTuple

HEAD_LIMIT_BYTES = 64 * 1024
"""A longer head is refused: it would be a peer that is not Envoy."""


class ProtocolError(Exception):
    """The peer sent something that has no place in HTTP/1.1 as Envoy speaks it."""


class Message(NamedTuple):
    """One complete request or response."""

    head: bytes
    """Start line and headers, without the empty line."""
    body_bytes: int
    """Length of the body, transfer coding removed."""


class MessageReader:
    """Feed it what arrives; it returns the messages that are complete."""

    __slots__ = ("_awaits_line", "_body_bytes", "_chunked", "_head", "_left", "_pending", "payload_bytes")

    def __init__(self) -> None:
        self.payload_bytes = 0
        """Body bytes seen on this connection so far, those of unfinished messages included."""
        self._pending = b""
        self._head: bytes | None = None
        self._body_bytes = 0
        self._left = 0
        self._chunked = False
        self._awaits_line = False

    def feed(self, data: bytes) -> list[Message]:
        """Take in bytes and return the messages they complete, usually one or none."""
        if self._pending:
            data = self._pending + data
            self._pending = b""
        done: list[Message] = []
        position = 0
        while True:
            if self._head is None:
                position = self._read_head(data, position)
                if self._head is None:
                    break
            if self._chunked:
                position, finished = self._read_chunks(data, position)
            else:
                taken = min(self._left, len(data) - position)
                self._left -= taken
                position += taken
                self._body_bytes += taken
                self.payload_bytes += taken
                finished = self._left == 0
            if not finished:
                break
            done.append(Message(self._head, self._body_bytes))
            self._head = None
            if position == len(data):
                break
        self._pending = data[position:]
        return done

    def _read_head(self, data: bytes, start: int) -> int:
        end = data.find(b"\r\n\r\n", start)
        if end < 0:
            if len(data) - start > HEAD_LIMIT_BYTES:
                raise ProtocolError(f"head longer than {HEAD_LIMIT_BYTES} bytes")
            return start
        head = data[start:end]
        lowered = head.lower()
        self._chunked = b"\r\ntransfer-encoding: chunked" in lowered
        self._left = 0 if self._chunked else content_length(lowered)
        self._awaits_line = self._chunked
        self._head = head
        self._body_bytes = 0
        return end + 4

    def _read_chunks(self, data: bytes, position: int) -> tuple[int, bool]:
        """Consume chunks; return the new position and whether the last one was among them.

        `_left` counts the chunk's payload and its line end; what is left of a size line that has not fully
        arrived stays unread.
        """
        while True:
            if self._awaits_line:
                end = data.find(b"\r\n", position)
                if end < 0:
                    return position, False
                size = chunk_size(data[position:end])
                if size == 0:
                    if len(data) < end + 4:
                        return position, False
                    if data[end : end + 4] != b"\r\n\r\n":
                        raise ProtocolError("trailers are not expected")
                    return end + 4, True
                position = end + 2
                self._left = size + 2
                self._awaits_line = False
            taken = min(self._left, len(data) - position)
            payload = min(taken, max(0, self._left - 2))
            self._body_bytes += payload
            self.payload_bytes += payload
            self._left -= taken
            position += taken
            if self._left:
                return position, False
            self._awaits_line = True


def content_length(lowered_head: bytes) -> int:
    """The value of content-length in a lower-case head; 0 when there is none."""
    start = lowered_head.find(b"\r\ncontent-length:")
    if start < 0:
        return 0
    start += len(b"\r\ncontent-length:")
    end = lowered_head.find(b"\r\n", start)
    value = (lowered_head[start:end] if end >= 0 else lowered_head[start:]).strip()
    if not value.isdigit():
        raise ProtocolError(f"content-length is not a number: {value[:40]!r}")
    return int(value)


def chunk_size(line: bytes) -> int:
    """The size in a chunk's first line; extensions are ignored."""
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise ProtocolError(f"chunk size is not a hexadecimal number: {line[:40]!r}") from None
