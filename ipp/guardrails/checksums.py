"""Check digits: what tells a card or a national number from any number of as many digits.

All take text whose separators are already gone, and say whether it is one; none raises.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

_IBANS: Final = (
    "AD:24 AE:23 AL:28 AT:20 AZ:28 BA:20 BE:16 BG:22 BH:22 BI:27 BR:29 BY:28 CH:21 CR:22 CY:28 CZ:24 "
    "DE:22 DJ:27 DK:18 DO:28 EE:20 EG:29 ES:24 FI:18 FK:18 FO:18 FR:27 GB:22 GE:22 GI:23 GL:18 GR:27 "
    "GT:28 HN:28 HR:21 HU:28 IE:22 IL:23 IQ:23 IS:26 IT:27 JO:30 KW:30 KZ:20 LB:28 LC:32 LI:21 LT:20 "
    "LU:20 LV:21 LY:25 MC:27 MD:24 ME:22 MK:19 MN:20 MR:27 MT:31 MU:30 NI:28 NL:18 NO:15 OM:23 PK:24 "
    "PL:28 PS:29 PT:25 QA:29 RO:24 RS:22 RU:33 SA:24 SC:31 SD:18 SE:24 SI:19 SK:24 SM:27 SO:23 ST:25 "
    "SV:28 TL:23 TN:24 TR:26 UA:29 VA:22 VG:24 XK:20 YE:30"
)
IBAN_LENGTHS: Final[dict[str, int]] = {entry[:2]: int(entry[3:]) for entry in _IBANS.split()}
"""Country -> characters of its IBANs."""

_LETTERS_AS_NUMBERS: Final = {code: str(code - 55) for code in range(ord("A"), ord("Z") + 1)}
_VALUES: Final = bytes(max(byte - 48, 0) for byte in range(256))
_DOUBLED: Final = bytes(byte * 2 - 9 if 4 < byte < 10 else byte * 2 % 256 for byte in range(256))
_VERHOEFF: Final = (
    "0123456789",
    "1234067895",
    "2340178956",
    "3401289567",
    "4012395678",
    "5987604321",
    "6598710432",
    "7659821043",
    "8765932104",
    "9876543210",
)
_VERHOEFF_TURNS: Final = (
    "0123456789",
    "1576283094",
    "5803796142",
    "8916043527",
    "9453126870",
    "4286573901",
    "2793806415",
    "7046913258",
)
_FISCAL_REST: Final = (2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_FISCAL_ODD: Final = dict(
    zip(
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        (1, 0, 5, 7, 9, 13, 15, 17, 19, 21) * 2 + _FISCAL_REST,
        strict=True,
    )
)
_SPANISH: Final = "TRWAGMYFPDXBNJZSQVHLCKE"


def luhn(digits: str) -> bool:
    """Of payment cards, Canadian, Swedish and South African numbers."""
    return luhn_bytes(digits.encode("ascii", "replace"))


def luhn_bytes(digits: bytes) -> bool:
    """The same of digits in ASCII."""
    raw = digits.translate(_VALUES)
    return (sum(raw[::-2]) + sum(raw[-2::-2].translate(_DOUBLED))) % 10 == 0


def card(digits: str) -> bool:
    """A number that a payment network issues, with the right length and check digit."""
    size = len(digits)
    lead = int(digits[:4])
    two, three = lead // 100, lead // 10
    known = (
        (lead // 1000 == 4 and size in {13, 16, 19})
        or (size == 16 and (51 <= two <= 55 or 2221 <= lead <= 2720 or 2200 <= lead <= 2204))
        or (size == 15 and two in {34, 37})
        or (size == 14 and (two in {36, 38, 39} or 300 <= three <= 305))
        or (16 <= size <= 19 and (lead == 6011 or two in {62, 65} or 644 <= three <= 649))
        or (16 <= size <= 19 and 3528 <= lead <= 3589)
        or (size in {16, 18, 19} and lead in {5018, 5020, 5038, 5893, 6304, 6759, 6761, 6762, 6763})
    )
    return known and len(set(digits)) > 1 and luhn(digits)


def iban(text: str) -> bool:
    """Letters large, no spaces."""
    if IBAN_LENGTHS.get(text[:2]) != len(text):
        return False
    turned = text[4:] + text[:4]
    return int(turned.translate(_LETTERS_AS_NUMBERS)) % 97 == 1


def weighted(digits: str, weights: Sequence[int]) -> int:
    """The sum of digits times weights."""
    return sum(int(d) * w for d, w in zip(digits, weights, strict=False))


def verhoeff(digits: str) -> bool:
    """Of Indian Aadhaar numbers."""
    check = 0
    for place, digit in enumerate(reversed(digits)):
        check = int(_VERHOEFF[check][int(_VERHOEFF_TURNS[place % 8][int(digit)])])
    return check == 0


def date(year: int, month: int, day: int) -> bool:
    """Whether there is such a day."""
    try:
        datetime.date(year, month, day)
    except ValueError:
        return False
    return True


def short_date(digits: str) -> bool:
    """Two digits each of the year, the month and the day, of any century."""
    year, month, day = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    return date(1900 + year, month, day) or date(2000 + year, month, day)


def german_tax(digits: str) -> bool:
    """Eleven digits; of the first ten one or two come more than once."""
    first = digits[:10]
    most = max(first.count(d) for d in set(first))
    if digits[0] == "0" or most not in {2, 3} or len(set(first)) not in {8, 9}:
        return False
    product = 10
    for digit in first:
        product = ((int(digit) + product) % 10 or 10) * 2 % 11
    return (11 - product) % 10 == int(digits[10])


def french(digits: str) -> bool:
    """Thirteen and a key of two; 2A and 2B of Corsica are written 19 and 18 for it."""
    number = digits[:13].replace("2A", "19").replace("2B", "18")
    return number.isdigit() and 97 - int(number) % 97 == int(digits[13:])


def spanish(text: str) -> bool:
    """DNI and NIE, letters large."""
    return _SPANISH[int(text[:-1].translate(str.maketrans("XYZ", "012"))) % 23] == text[-1]


def italian(text: str) -> bool:
    """The fiscal code, letters large."""
    odd = sum(_FISCAL_ODD[c] for c in text[0:15:2])
    even = sum(int(c) if c.isdigit() else ord(c) - 65 for c in text[1:15:2])
    return chr(65 + (odd + even) % 26) == text[15]


def belgian(digits: str) -> bool:
    """The national number, of people born before and from 2000 on."""
    check = int(digits[9:])
    born = any(97 - int(century + digits[:9]) % 97 == check for century in ("", "2"))
    return born and int(digits[2:4]) % 20 <= 12 and int(digits[4:6]) <= 31


def polish(digits: str) -> bool:
    """PESEL; the century is in the month."""
    century = {0: 1900, 2: 2000, 4: 2100, 6: 2200, 8: 1800}.get(int(digits[2]) // 2 * 2, 0)
    born = date(century + int(digits[:2]), int(digits[2:4]) % 20, int(digits[4:6]))
    return born and (10 - weighted(digits, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3)) % 10) % 10 == int(digits[10])


def norwegian(digits: str) -> bool:
    """Date, number, two check digits."""
    day = int(digits[:2]) % 40
    born = short_date(digits[4:6] + digits[2:4] + f"{day:02d}")
    first = (11 - weighted(digits, (3, 7, 6, 1, 8, 9, 4, 5, 2)) % 11) % 11
    second = (11 - weighted(digits, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11) % 11
    return born and first == int(digits[9]) and second == int(digits[10])


def swiss(digits: str) -> bool:
    """AHV number: an EAN-13."""
    return (10 - weighted(digits, (1, 3) * 6) % 10) % 10 == int(digits[12])


def brazilian(digits: str) -> bool:
    """CPF."""
    if len(set(digits)) == 1:
        return False
    first = weighted(digits, range(10, 1, -1)) * 10 % 11 % 10
    second = weighted(digits, range(11, 1, -1)) * 10 % 11 % 10
    return first == int(digits[9]) and second == int(digits[10])


def chinese(text: str) -> bool:
    """Resident number: area, date of birth, order, check character."""
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    born = date(int(text[6:10]), int(text[10:12]), int(text[12:14]))
    return born and "10X98765432"[weighted(text[:17], weights) % 11] == text[17]


def korean(digits: str) -> bool:
    """Resident number; since 2020 the last digits are drawn, so only the date tells."""
    return short_date(digits)


def japanese(digits: str) -> bool:
    """My Number."""
    rest = weighted(digits, (6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2)) % 11
    return int(digits[11]) == (0 if rest <= 1 else 11 - rest)


def turkish(digits: str) -> bool:
    """Identity number."""
    odd, even = sum(map(int, digits[0:9:2])), sum(map(int, digits[1:8:2]))
    tenth = (odd * 7 - even) % 10
    return digits[0] != "0" and int(digits[9]) == tenth and int(digits[10]) == sum(map(int, digits[:10])) % 10


def finnish(text: str) -> bool:
    """Personal code, without its sign of the century: six digits, three, the check character."""
    return (
        short_date(text[4:6] + text[2:4] + text[:2])
        and "0123456789ABCDEFHJKLMNPRSTUVWXY"[int(text[:9]) % 31] == text[9]
    )


def british_health(digits: str) -> bool:
    """NHS number."""
    check = 11 - weighted(digits, range(10, 1, -1)) % 11
    return check != 10 and check % 11 == int(digits[9])


def mexican(text: str) -> bool:
    """CURP, letters large."""
    alphabet = "0123456789ABCDEFGHIJKLMN*OPQRSTUVWXYZ"
    total = sum(alphabet.index(c) * (18 - place) for place, c in enumerate(text[:17]))
    return (10 - total % 10) % 10 == int(text[17]) and short_date(text[4:10])


def south_african(digits: str) -> bool:
    """Date of birth, order, citizenship, check digit."""
    return short_date(digits) and digits[10] in "012" and luhn(digits)
