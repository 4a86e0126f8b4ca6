"""National numbers: their shapes, and the checks that tell them from other numbers.

Where a country's number has neither check digits nor separators it is not looked for: any nine digits would
be one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ipp.guardrails import checksums
from ipp.guardrails.scanning import Check, Item


def beside(raw: bytes, start: int, end: int) -> bool:
    """Whether a number seems to go on at one of its ends: it is part of another."""
    before = raw[start - 1 : start]
    after = raw[end : end + 1]
    return bool(before and before in b"./") or bool(after and after in b"/_" and before != b"_")


def by_digits(check: Callable[[str], bool], size: int | None = None) -> Check:
    """A check of what stays without separators, letters made large.

    ``size``: how many characters there must be, for patterns that look beyond their number's end.
    """

    def judge(raw: bytes, start: int, end: int) -> int:
        kept = raw[start:end].translate(None, b" .-+")
        if (size is not None and len(kept) != size) or beside(raw, start, end):
            return -1
        # Without regard to case, RE2 takes two letters beyond ASCII for those they are the large forms of.
        return end if kept.isascii() and check(kept.decode().upper()) else -1

    return judge


def _social_security(digits: str) -> bool:
    area = digits[:3]
    return area not in {"000", "666"} and area < "900" and digits[3:5] != "00" and digits[5:] != "0000"


def _national_insurance(text: str) -> bool:
    return text[:2] not in {"BG", "GB", "KN", "NK", "NT", "TN", "ZZ"}


def _danish(digits: str) -> bool:
    return checksums.short_date(digits[4:6] + digits[2:4] + digits[:2])


def _swedish(digits: str) -> bool:
    day = int(digits[-6:-4]) % 60
    return checksums.short_date(digits[-10:-6] + f"{day:02d}") and checksums.luhn(digits[-10:])


def _finnish(text: str) -> bool:
    century = text[6:7]
    plain = text if len(text) == 10 else text[:6] + text[7:]
    return len(plain) == 10 and (len(text) == 10 or century.isalpha()) and checksums.finnish(plain)


_SIZES: Final = {"in": 12, "jp": 12}
_SHAPES: Final[tuple[tuple[str, str, Callable[[str], bool]], ...]] = (
    ("be", r"\b\d{2}[. ]?\d{2}[. ]?\d{2}[- ]\d{3}[. ]?\d{2}\b", checksums.belgian),
    ("br", r"\b\d{3}\.?\d{3}\.?\d{3}-?\d{2}\b", checksums.brazilian),
    ("ca", r"\b[1-79]\d{2}-\d{3}-\d{3}\b", checksums.luhn),
    ("ch", r"\b756[. ]?\d{4}[. ]?\d{4}[. ]?\d{2}\b", checksums.swiss),
    ("cn", r"\b[1-9]\d{5}(?:19|20)\d{9}[\dXx]\b", checksums.chinese),
    ("de", r"\b(?:[1-9]\d{10}|[1-9]\d \d{3} \d{3} \d{3})\b", checksums.german_tax),
    ("dk", r"\b[0-3]\d[01]\d{3}-\d{4}\b", _danish),
    ("es", r"(?i)\b(?:\d{8}|[XYZ]-?\d{7})-?[TRWAGMYFPDXBNJZSQVHLCKE]\b", checksums.spanish),
    ("fi", r"(?i)\b[0-3]\d[01]\d{3}[-+ABCDEFUVWXY]\d{3}[0-9A-Y]\b", _finnish),
    (
        "fr",
        r"\b[12] ?\d{2} ?(?:0[1-9]|1[0-2]|[2-9]\d) ?(?:\d{2}|2[AB]) ?\d{3} ?\d{3} ?\d{2}\b",
        checksums.french,
    ),
    ("gb", r"(?i)\b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b", _national_insurance),
    ("gb", r"\b[1-9]\d{2}[ -]\d{3}[ -]\d{4}\b", checksums.british_health),
    ("in", r"\b[2-9]\d{3} \d{4} \d{4}\b(?: \d)?", checksums.verhoeff),
    ("it", r"(?i)\b[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]\b", checksums.italian),
    ("jp", r"\b\d{4} \d{4} \d{4}\b(?: \d)?", checksums.japanese),
    ("kr", r"\b\d{6}-[1-8]\d{6}\b", checksums.korean),
    ("mx", r"(?i)\b[A-Z]{4}\d{6}[HMX][A-Z]{5}[0-9A-Z]\d\b", checksums.mexican),
    ("no", r"\b[0-7]\d[01]\d{3} ?\d{5}\b", checksums.norwegian),
    ("pl", r"\b\d{11}\b", checksums.polish),
    ("se", r"\b(?:19|20)?\d{6}[-+]\d{4}\b", _swedish),
    ("tr", r"\b[1-9]\d{10}\b", checksums.turkish),
    ("us", r"\b\d{3}[- ]\d{2}[- ]\d{4}\b", _social_security),
    ("za", r"\b\d{10}[012]\d{2}\b", checksums.south_african),
)


ITEMS: Final = [
    Item(f"nationalId.{country}", pattern, by_digits(check, _SIZES.get(country)))
    for country, pattern, check in _SHAPES
]
