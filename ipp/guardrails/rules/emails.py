"""E-mail addresses, looked for from their at sign: a pattern would try every word as the beginning of one.

Letters beyond ASCII count in the part before the at sign as far as alphabets go (Latin, Greek, Cyrillic,
Hebrew, Arabic), so that an address in Japanese text ends where the Japanese begins.
"""

from __future__ import annotations

import re
from typing import Final

MAX_LOCAL: Final = 64
"""Characters before the at sign."""
MAX_DOMAIN: Final = 253
LONGEST: Final = MAX_LOCAL + 1 + MAX_DOMAIN

_FILES_TEXT: Final = (
    "avif bmp c cfg conf cpp css csv gif go gz h htm html ico jpeg jpg js json jsx less log lock map md "
    "mjs mov mp3 mp4 pdf php png py rb rs rst scss sh sql svg tar toml ts tsx txt vue webp xml yaml yml "
    "zip"
)
_FILES: Final = frozenset(_FILES_TEXT.split())
"""Endings of file names, which no e-mail address has: ``logo@2x.png``."""


_LOCAL: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+'-")
_DOMAIN: Final = re.compile(rf"[\w.-]{{1,{MAX_DOMAIN}}}")
_LABEL: Final = re.compile(rb"[A-Za-z0-9_\x80-\xff-]{1,252}+\.")
"""What every domain begins with."""
_TOP: Final = re.compile(r"(?:xn--[a-zA-Z0-9-]{2,30}|[a-zA-Z]{2,24}|[\u00C0-\u07FF]{2,24})(?![a-zA-Z0-9_-])")


def search(raw: bytes, at: int) -> tuple[int, int] | None:
    """The first address that begins at ``at`` or later, in bytes."""
    sign = raw.find(b"@", at)
    while sign >= 0:
        if _LABEL.match(raw, sign + 1) is None:
            sign = raw.find(b"@", sign + 1)
            continue
        start = _local_start(raw, sign)
        if at <= start < sign and _is_local(raw[start:sign]):
            domain = _domain(raw, sign + 1)
            after = raw[sign + 1 + len(domain) : sign + 2 + len(domain)]
            if domain and after != b"@" and (after != b":" or raw[start:sign] != b"git"):
                return start, sign + 1 + len(domain)
        sign = raw.find(b"@", sign + 1)
    return None


def _domain(raw: bytes, at: int) -> bytes:
    """The domain that begins there; empty when there is none."""
    found = _DOMAIN.match(raw[at : at + 4 * MAX_DOMAIN].decode("utf-8", "ignore"))
    labels = found[0].split(".") if found else []
    good = 0
    while good < len(labels) and labels[good] and not labels[good].startswith("-") and len(labels[good]) < 64:
        good += 1
    for last in range(good - 1, 0, -1):
        top = _TOP.match(labels[last])
        if top and not labels[last - 1].endswith("-"):
            return b"" if top[0].lower() in _FILES else ".".join((*labels[:last], top[0])).encode()
    return b""


def _is_local(local: bytes) -> bool:
    return not (local.startswith(b".") or local.endswith(b".") or b".." in local)


def _local_start(raw: bytes, sign: int) -> int:
    """Where the part before the at sign begins; ``sign`` when there is none or it is too long."""
    start, size = sign, 0
    while size <= MAX_LOCAL:
        before = _step_back(raw, start)
        if before == start:
            return start
        start, size = before, size + 1
    return sign


def _step_back(raw: bytes, at: int) -> int:
    """One character of the local part back; the same place when there is none."""
    if at >= 1 and raw[at - 1] in _LOCAL:
        return at - 1
    if at >= 2 and 0x80 <= raw[at - 1] < 0xC0 and 0xC3 <= raw[at - 2] <= 0xDF:
        return at - 2
    return at
