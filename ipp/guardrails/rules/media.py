"""Images, sound, video and files in a request, by type, size, number and where they come from.

Seen in every shape that the APIs have: data URLs, parts with ``input_image``, ``input_file`` and
``input_audio``, sources of Anthropic's blocks, inline and remote data of Gemini's parts, in messages as
well as in results of tools. What is sent along is also looked at: when its first bytes say another kind of
file than its type does, it counts as what it is.
"""

from __future__ import annotations

import base64
import binascii
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dataplane.config.guardrails import Media
from ipp.guardrails.matches import BodyMatch, Facts

MAX_DEPTH: Final = 64
_SNIFFED: Final = 32
"""Base64 characters that are decoded to see what a file is."""

_MAGIC: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x7fELF", "application/x-executable"),
    (b"MZ\x90", "application/x-executable"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"<svg", "image/svg+xml"),
)
_URLS: Final = {
    "image_url": "image/*",
    "audio_url": "audio/*",
    "video_url": "video/*",
    "file_url": "application/*",
}
_ZIPPED: Final = (
    "application/vnd.openxmlformats",
    "application/vnd.oasis.opendocument",
    "application/epub+zip",
)
_BRANDS: Final = {b"avif": "image/avif", b"heic": "image/heic", b"mif1": "image/heic", b"M4A ": "audio/mp4"}


class _Item(NamedTuple):
    path: str
    type: str
    """As it says; ``image/*`` where only the kind is known, empty where nothing is."""
    data: str | None
    """Base64, or what a data URL holds."""
    url: str
    """Where it is, when it is not here; an upload's identifier is none."""
    base64: bool = True


class MediaRule:
    """Kinds: ``type``, ``disguised``, ``size``, ``count``, ``remote``, ``host``."""

    def __init__(self, parameters: Media) -> None:
        self._types = parameters.types
        self._max_bytes, self._max_items = parameters.max_bytes, parameters.max_items
        self._remote = parameters.remote
        self._hosts = parameters.hosts

    def check(self, body: Mapping[str, Any], facts: Facts) -> Sequence[BodyMatch]:
        found: list[BodyMatch] = []
        for count, item in enumerate(_items(body), 1):
            if self._max_items is not None and count > self._max_items:
                found.append(BodyMatch(item.path, "count"))
                break
            kind = self._wrong_here(item) if item.data is not None else self._wrong_there(item)
            if kind:
                found.append(BodyMatch(item.path, kind))
        return found

    def _wrong_here(self, item: _Item) -> str:
        data = item.data or ""
        if self._max_bytes is not None and _size(data, is_base64=item.base64) > self._max_bytes:
            return "size"
        if self._types is None:
            return ""
        if not self._allows(item.type):
            return "type"
        really = _sniff(data) if item.base64 else ""
        zipped = really == "application/zip" and item.type.startswith(_ZIPPED)
        return "" if not really or zipped or self._allows(really) else "disguised"

    def _wrong_there(self, item: _Item) -> str:
        if not self._remote:
            return "remote"
        if item.url and self._hosts is not None and not self._names_host(item.url):
            return "host"
        return "" if self._types is None or not item.type or self._allows(item.type) else "type"

    def _allows(self, given: str) -> bool:
        kind = given.partition("/")[0]
        for allowed in self._types or ():
            if given == allowed or (allowed.endswith("/*") and kind == allowed[:-2]):
                return True
            if given.endswith("/*") and allowed.startswith(given[:-1]):
                return True
        return False

    def _names_host(self, url: str) -> bool:
        try:
            host = (urllib.parse.urlsplit(url).hostname or "").rstrip(".")
        except ValueError:
            return False
        return any(
            host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))
            for allowed in self._hosts or ()
        )


def _items(body: Mapping[str, Any]) -> Iterator[_Item]:
    """In the body's order."""
    waiting: list[tuple[str, Any, int]] = [("", body, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        if isinstance(value, dict):
            item = _item(path, value)
            if item is not None:
                yield item
                continue
            inner = [(f"{path}.{key}" if path else str(key), part, depth + 1) for key, part in value.items()]
        elif isinstance(value, list):
            inner = [(f"{path}[{index}]", part, depth + 1) for index, part in enumerate(value)]
        else:
            continue
        if depth < MAX_DEPTH:
            waiting.extend(entry for entry in reversed(inner) if isinstance(entry[1], (dict, list)))


def _item(path: str, part: Mapping[str, Any]) -> _Item | None:
    """What one object of the body is, when it is an image, a sound, a video or a file."""
    for field, usual in _URLS.items():
        named: Any = part.get(field)
        named = named.get("url") if isinstance(named, Mapping) else named
        if isinstance(named, str):
            return _by_url(f"{path}.{field}", named, usual)
    for field in ("input_audio", "file", "inlineData", "inline_data", "fileData", "file_data", "source"):
        inner = part.get(field)
        if isinstance(inner, Mapping) and (found := _by_source(f"{path}.{field}", inner)):
            return found
    if isinstance(part.get("file_data"), str):
        return _by_source(path, part)
    kind = part.get("type")
    if isinstance(kind, str) and kind.startswith("input_") and isinstance(part.get("file_id"), str):
        return _Item(path, "image/*" if kind == "input_image" else "", None, "")
    return None


def _by_source(path: str, source: Mapping[str, Any]) -> _Item | None:
    given = source.get("media_type") or source.get("mimeType") or source.get("mime_type") or ""
    given = given if isinstance(given, str) else ""
    data = next((value for key in ("data", "file_data") if isinstance(value := source.get(key), str)), None)
    if source.get("type") in ("text", "content"):
        return None
    if isinstance(data, str):
        if data[:5].lower() == "data:":
            return _by_url(path, data, given)
        sound = source.get("format")
        kind = given or (f"audio/{sound}" if isinstance(sound, str) else "")
        return _Item(path, _clean(kind), data, "")
    for key in ("url", "fileUri", "file_uri"):
        if isinstance(source.get(key), str):
            return _by_url(path, source[key], given)
    if isinstance(source.get("file_id"), str):
        return _Item(path, _clean(given), None, "")
    return None


def _by_url(path: str, url: str, kind: str) -> _Item:
    if url[:5].lower() != "data:":
        return _Item(path, _clean(kind), None, url)
    head, _, data = url[5:].partition(",")
    return _Item(path, _clean(head) or "text/plain", data, "", base64="base64" in head.lower().split(";"))


def _clean(kind: str) -> str:
    plain = kind.partition(";")[0].strip().lower()
    return {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg"}.get(plain, plain)


def _size(data: str, *, is_base64: bool) -> int:
    if not is_base64:
        return len(data)
    return (len(data) - data[-2:].count("=")) * 3 // 4


def _sniff(data: str) -> str:
    """What the first bytes say it is; empty when they say nothing."""
    try:
        first = base64.b64decode(data[:_SNIFFED])
    except (binascii.Error, ValueError):
        return ""
    for magic, kind in _MAGIC:
        if first.startswith(magic):
            return kind
    if first[:4] == b"RIFF":
        return {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(first[8:12], "")
    return _BRANDS.get(first[8:12], "video/mp4") if first[4:8] == b"ftyp" else ""
