"""What identifies a person, and secrets.

Shapes are RE2 patterns in one set; what has check digits must have right ones, so an order number that looks
like a card is none. Kinds say the entity, and of which country or whose it is where that is known:
``nationalId.de``, ``secret.github``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import ClassVar, Final

from dataplane.config.guardrails import Pii
from ipp.guardrails import checksums, normalize
from ipp.guardrails.matches import Match
from ipp.guardrails.rules import emails, national, secrets
from ipp.guardrails.scanning import Item, Scanner

_CARD: Final = (
    r"\b(?:[2-6]\d{12,18}|[2-6]\d{3}[ .-]\d{4}[ .-]\d{4}[ .-]\d{1,4}(?:[ .-]\d{1,3})?|"
    r"3\d{3}[ .-]\d{6}[ .-]\d{4,5})\b"
)
_IBAN: Final = r"(?i)\b[A-Z]{2}\d{2}(?:[ -]?[A-Z0-9]){11,30}"
_OCTET: Final = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_ADDRESS: Final = rf"{_OCTET}(?:\.{_OCTET}){{3}}\b"
_IPV4: Final = rf"\b{_ADDRESS}(?:\.\d|-{_ADDRESS})?"
_IPV6: Final = r"(?i)(?:[0-9a-f]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9a-f]{0,4})"
_NUMBERS: Final = re.compile(rb"[0-9.]+")
_GROUPS: Final = re.compile(rb"[0-9a-fA-F:.]+")
_PHONES: Final = (
    r"(?:\+|\b00)[1-9]\d{0,2}(?:[ ./-]{0,2}\(?\d{1,5}\)?){2,6}",
    r"(?:\b|\()[2-9]\d{2}(?:\) ?|[-.])[2-9]\d{2}[-. ]\d{4}\b",
    r"\b0[1-9](?:[ .-]\d{2}){4}\b",
    r"\b\(?0\d{2,5}\)?[ /-]{1,3}\d{3,4}[ -]?\d{3,5}\b",
    r"\(0\d{2,5}\)[ /-]{0,2}\d{3,4}[ -]?\d{3,5}\b",
)
_CALLING_CODES_TEXT: Final = (
    "1 20 211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 236 237 238 "
    "239 240 241 242 243 244 245 246 248 249 250 251 252 253 254 255 256 257 258 260 261 262 263 264 265 "
    "266 267 268 269 27 290 291 297 298 299 30 31 32 33 34 350 351 352 353 354 355 356 357 358 359 36 370 "
    "371 372 373 374 375 376 377 378 380 381 382 383 385 386 387 389 39 40 41 420 421 423 43 44 45 46 47 "
    "48 49 500 501 502 503 504 505 506 507 508 509 51 52 53 54 55 56 57 58 590 591 592 593 594 595 596 "
    "597 598 599 60 61 62 63 64 65 66 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 688 "
    "689 690 691 692 7 81 82 84 850 852 853 855 856 86 880 886 90 91 92 93 94 95 960 961 962 963 964 965 "
    "966 967 968 970 971 972 973 974 975 976 977 98 992 993 994 995 996 998"
)
_CALLING_CODES: Final = frozenset(_CALLING_CODES_TEXT.split())
_NO_DIGITS: Final = bytes(code for code in range(256) if not 48 <= code <= 57)
_NAMES: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


class PiiRule:
    """Kinds: the entities, with a country or an issuer behind a dot."""

    is_local: ClassVar[bool] = True

    def __init__(self, parameters: Pii, *, streaming: bool) -> None:
        items = [item for entity in parameters.entities for item in _items(entity, streaming)]
        self.longest: int | None = None
        if streaming:
            self.longest = max(item.longest or 1 for item in items)
        self._scanner = Scanner(items)

    def find(self, text: str, start: int = 0) -> Sequence[Match]:
        return self._scanner.find(text if text.isascii() else normalize.plain_digits(text), start)


def _items(entity: str, streaming: bool) -> list[Item]:
    if entity == "email":
        return [Item("email", "@", search=emails.search, length=emails.LONGEST)]
    if entity == "phone":
        return [Item("phone", _PHONES[0], _international), *(Item("phone", p, _local) for p in _PHONES[1:])]
    if entity == "iban":
        return [Item("iban", _IBAN, _iban)]
    if entity == "card":
        return [Item("card", _CARD, _card)]
    if entity == "ip":
        return [Item("ip.v4", _IPV4, _ipv4), Item("ip.v6", _IPV6, _ipv6)]
    return national.ITEMS if entity == "nationalId" else secrets.items(streaming=streaming)


def _card(raw: bytes, start: int, end: int) -> int:
    text = raw[start:end]
    digits = text.translate(None, b" .-")
    # What few numbers pass comes first.
    if not checksums.luhn_bytes(digits) or not checksums.card(digits.decode()):
        return -1
    signs = text.translate(None, b"0123456789")
    return -1 if signs.strip(signs[:1]) or national.beside(raw, start, end) else end


def _iban(raw: bytes, start: int, end: int) -> int:
    wanted = checksums.IBAN_LENGTHS.get(raw[start : start + 2].decode("ascii", "replace").upper(), 0)
    kept = raw[start:end].translate(None, b" -")[:wanted]
    if not wanted or len(kept) != wanted or not kept.isascii() or not checksums.iban(kept.decode().upper()):
        return -1
    at = start + wanted
    while (missing := wanted - len(raw[start:at].translate(None, b" -"))) > 0:
        at += missing
    return -1 if raw[at : at + 1] and raw[at : at + 1] in _NAMES else at


def _ipv4(raw: bytes, start: int, end: int) -> int:
    before, after = raw[start - 1 : start], raw[end : end + 1]
    first, _, last = raw[start:end].partition(b"-")
    if first.count(b".") > 3 or (before and before in b".-_+") or (after and after in b"-_"):
        return _behind(_NUMBERS, raw, start)
    address = last or first
    if address.startswith(b"127.") or address in (b"0.0.0.0", b"255.255.255.255"):
        return _behind(_NUMBERS, raw, start)
    return end


def _ipv6(raw: bytes, start: int, end: int) -> int:
    before, after = raw[start - 1 : start], raw[end : end + 1]
    text = raw[start:end].decode()
    if (
        (before and (before in _NAMES or before in b":."))
        or (after and (after in _NAMES or after in b":.-"))
        or ("::" not in text and text.count(":") < 6)
    ):
        return _behind(_GROUPS, raw, start)
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        return _behind(_GROUPS, raw, start)
    telling = any(c.isdigit() for c in text) and sum(1 for part in text.split(":") if part) >= 2
    if not telling or address.is_loopback or address.is_unspecified:
        return _behind(_GROUPS, raw, start)
    return end


def _behind(run: re.Pattern[bytes], raw: bytes, start: int) -> int:
    """No address begins before the run's end either: it would stand behind one of its characters."""
    found = run.match(raw, start)
    return -found.end() if found else -1


def _international(raw: bytes, start: int, end: int) -> int:
    digits = raw[start:end].translate(None, _NO_DIGITS).decode()
    if raw[start : start + 1] != b"+":
        digits = digits[2:]
    before, after = raw[start - 1 : start], raw[end : end + 1]
    if not 8 <= len(digits) <= 15 or (before and before in _NAMES) or (after and after in _NAMES + b"_"):
        return -1
    return end if any(digits[:size] in _CALLING_CODES for size in (1, 2, 3)) else -1


def _local(raw: bytes, start: int, end: int) -> int:
    before, after = raw[start - 1 : start], raw[end : end + 1]
    if (before and before in b"-./+_#") or (after and after in b"-/_"):
        return -1
    return end if 9 <= len(raw[start:end].translate(None, _NO_DIGITS)) <= 12 else -1
