"""One HTTP/1.1 response read into a buffer that is kept for the next one; no sockets in here.

The scraper reads thousands of small responses a second from servers it already knows, so this reader does
the minimum: status, framing (Content-Length, chunked, or until the connection closes), and limits. Every
violation ends in a ``ScrapeError`` that names its kind, a detail and the way out.
"""

from __future__ import annotations

import re
from typing import Final

MAX_HEADER_BYTES: Final = 64 * 1024
"""Status line and headers of one response, interim responses and trailers included."""

MAX_BODY_BYTES: Final = 8 * 1024 * 1024
"""Body of one response; for a chunked one the chunk lines count as well."""

MAX_CHUNK_LINE_BYTES: Final = 1024
"""Size line of one chunk with its extensions."""

INITIAL_BUFFER: Final = 64 * 1024
RETAINED_BUFFER: Final = 256 * 1024
"""A buffer that grew beyond this is given up after the response."""
MAX_BUFFER: Final = MAX_HEADER_BYTES + MAX_BODY_BYTES + 64
"""Room for the largest response and for a few bytes more, by which a larger one is noticed."""

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: [^\r\n]*)?\r\n")
_FRAMING: Final = re.compile(
    rb"\n(content-length|content-encoding|transfer-encoding|connection):([^\r\n]*)\r"
)
_HEX: Final = re.compile(rb"[0-9a-fA-F]{1,8}")


class ScrapeError(Exception):
    """One scrape failed: ``kind`` tells failures apart, ``detail`` is what was seen, ``hint`` the way out."""

    def __init__(self, kind: str, detail: str, hint: str) -> None:
        super().__init__(f"{detail}; {hint}")
        self.kind = kind
        self.detail = detail
        self.hint = hint


class ResponseReader:
    """Bytes in at ``space``, counted in by ``filled``; the body out when it is complete."""

    __slots__ = (
        "_body_start",
        "_buffer",
        "_chunk_at",
        "_chunks",
        "_end",
        "_head_start",
        "_length",
        "_view",
        "keep_alive",
    )

    def __init__(self) -> None:
        self._allocate(INITIAL_BUFFER)
        self.reset()

    def reset(self) -> None:
        """Be ready for the next response."""
        if len(self._buffer) > RETAINED_BUFFER:
            self._allocate(INITIAL_BUFFER)
        self._end = 0
        self._head_start = 0
        self._body_start = 0
        """0 while the header is incomplete."""
        self._length: int | None = None
        self._chunk_at = 0
        self._chunks: list[tuple[int, int]] | None = None
        self.keep_alive = True

    @property
    def empty(self) -> bool:
        """Whether nothing of this response has arrived."""
        return self._end == 0

    def space(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._end == len(self._buffer):
            self._grow()
        return self._view[self._end :]

    def filled(self, count: int) -> bytes | None:
        """``count`` bytes have been written to ``space``. The body if it is complete, else None."""
        self._end += count
        if self._body_start == 0 and not self._read_header():
            return None
        if self._chunks is not None:
            return self._read_chunks()
        stop = self._body_start + (MAX_BODY_BYTES if self._length is None else self._length)
        if self._length is None:
            if self._end > stop:
                raise _too_large()
            return None
        if self._end < stop:
            return None
        if self._end > stop:
            self.keep_alive = False
        return bytes(self._view[self._body_start : stop])

    def closed(self) -> bytes:
        """The server closed the connection: the body of a response that lasts until then."""
        if self._body_start and self._length is None and self._chunks is None:
            return bytes(self._view[self._body_start : self._end])
        raise ScrapeError(
            "reset",
            f"the connection was closed after {self._end} bytes of an unfinished response",
            "look at the model server's log for why it drops its metrics connections",
        )

    def _read_header(self) -> bool:
        while True:
            buffer, start = self._buffer, self._head_start
            stop = buffer.find(b"\r\n\r\n", start, self._end)
            if stop < 0:
                self._refuse_endless_or_foreign_header()
                return False
            if stop > MAX_HEADER_BYTES:
                raise _header_too_large()
            head = bytes(self._view[start : stop + 2])
            status = _STATUS.match(head)
            if status is None:
                raise _not_http(head)
            code = int(status[2])
            if code >= 200:
                self._body_start = stop + 4
                self._frame(code, status[1] == b"1", head)
                return True
            self._head_start = stop + 4

    def _refuse_endless_or_foreign_header(self) -> None:
        start = self._head_start
        if self._end > MAX_HEADER_BYTES:
            raise _header_too_large()
        prefix = bytes(self._view[start : min(self._end, start + 7)])
        if not b"HTTP/1.".startswith(prefix):
            raise _not_http(bytes(self._view[start : min(self._end, start + 40)]))

    def _frame(self, code: int, http11: bool, head: bytes) -> None:
        """Decide how the body is delimited."""
        lengths: set[bytes] = set()
        chunked = False
        self.keep_alive = http11
        for name, padded in _FRAMING.findall(head.lower()):
            value = padded.strip()
            if name == b"content-length":
                lengths.add(value)
            elif name == b"connection":
                self.keep_alive = b"close" not in value and (http11 or b"keep-alive" in value)
            elif name == b"content-encoding":
                if code == 200 and value not in (b"identity", b""):
                    raise _compressed(value)
            elif value == b"chunked":
                chunked = True
            elif value != b"identity":
                raise ScrapeError(
                    "encoding",
                    f"transfer encoding {value.decode('latin-1')[:40]!r} is not understood",
                    "serve the metrics with Content-Length or chunked",
                )
        if code != 200:
            raise ScrapeError(
                "status",
                f"the server answers HTTP status {code}",
                "check scheme, path and port of the data source against the model server",
            )
        if chunked:
            self._chunks, self._chunk_at = [], self._body_start
            self.keep_alive &= not lengths
            return
        if not lengths:
            self.keep_alive = False
            return
        (text,) = lengths if len(lengths) == 1 else (b"",)
        if not text.isdigit() or len(text) > 18:
            raise _not_http(b"content-length: " + b", ".join(sorted(lengths)))
        self._length = int(text)
        if self._length > MAX_BODY_BYTES:
            raise _too_large()

    def _read_chunks(self) -> bytes | None:
        """Walk the chunks that are here; the body once the last chunk and its trailers are."""
        buffer, end, at = self._buffer, self._end, self._chunk_at
        chunks = self._chunks if self._chunks is not None else []
        if end - self._body_start > MAX_BODY_BYTES:
            raise _too_large()
        while True:
            line_end = buffer.find(b"\r\n", at, min(end, at + MAX_CHUNK_LINE_BYTES))
            if line_end < 0:
                if end - at >= MAX_CHUNK_LINE_BYTES:
                    raise _not_http(bytes(self._view[at : at + 40]))
                break
            size_text = bytes(self._view[at:line_end]).partition(b";")[0].strip()
            if _HEX.fullmatch(size_text) is None:
                raise _not_http(size_text[:40])
            size = int(size_text, 16)
            if size == 0:
                return self._finish_chunks(line_end)
            stop = line_end + 2 + size
            if stop + 2 > end:
                break
            if buffer[stop : stop + 2] != b"\r\n":
                raise _not_http(bytes(self._view[stop : stop + 2]))
            chunks.append((line_end + 2, stop))
            at = self._chunk_at = stop + 2
        return None

    def _finish_chunks(self, line_end: int) -> bytes | None:
        """The last chunk's line ends at ``line_end``: wait for the empty line after the trailers."""
        trailer_end = self._buffer.find(b"\r\n\r\n", line_end, self._end)
        if trailer_end < 0:
            if self._end - line_end > MAX_HEADER_BYTES:
                raise _header_too_large()
            return None
        if self._end > trailer_end + 4:
            self.keep_alive = False
        view = self._view
        return b"".join([view[start:stop] for start, stop in self._chunks or ()])

    def _allocate(self, size: int) -> None:
        self._buffer = bytearray(size)
        self._view = memoryview(self._buffer)

    def _grow(self) -> None:
        old, end = self._buffer, self._end
        self._allocate(min(2 * len(old), MAX_BUFFER))
        self._buffer[:end] = old


def _too_large() -> ScrapeError:
    return ScrapeError(
        "too large",
        f"the answer is longer than {MAX_BODY_BYTES} bytes",
        "check that the path is that of the metrics, and reduce the number of series the server exposes",
    )


def _compressed(coding: bytes) -> ScrapeError:
    return ScrapeError(
        "compressed",
        f"the answer is compressed ({coding.decode('latin-1')[:40]}), which was not asked for",
        "have the server, or a proxy before it, heed Accept-Encoding: identity",
    )


def _header_too_large() -> ScrapeError:
    return ScrapeError(
        "header too large",
        f"the response header is longer than {MAX_HEADER_BYTES} bytes",
        "check that the port is the one the model server serves its metrics on",
    )


def _not_http(sample: bytes) -> ScrapeError:
    return ScrapeError(
        "garbage",
        f"the answer is not HTTP/1.1: {sample[:40]!r}",
        "check scheme and port of the data source against the model server",
    )
