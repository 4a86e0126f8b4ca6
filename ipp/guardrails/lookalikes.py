"""Which characters stand for which letters when somebody disguises a word.

Two kinds. Some letters are only ever shapes of Latin ones (small capitals, letters in squares, crossed
letters): they are folded away for good. Others are letters of living scripts that look like Latin ones, and
digits and signs that stand for letters ("leetspeak"): these say a word in disguise only where the word around
them says so too, which is for whoever searches to judge.
"""

from __future__ import annotations

from typing import Final


def _pairs(shapes: str, letters: str) -> dict[int, str]:
    return {ord(shape): letter for shape, letter in zip(shapes, letters, strict=True)}


SHAPES: Final[dict[int, str]] = {
    **_pairs("ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢ", "abcdefghijklmnopqrstuvwyz"),
    **_pairs("ɑɡɩɾʋʀɒƅɓƈɗɖɠɨɉƙɭƚɲɳƥʠɼƭʈʉⱱʂȥ", "agirvrabbcddgijkllnnpqrttuvsz"),
    **_pairs("øđłħŧɨƀɍɏɇⱥ", "odlhtibryea"),
    **{0x1F1E6 + i: chr(97 + i) for i in range(26)},
    **{0x1F130 + i: chr(97 + i) for i in range(26)},
    **{0x1F150 + i: chr(97 + i) for i in range(26)},
    **{0x1F170 + i: chr(97 + i) for i in range(26)},
    **{0x249C + i: chr(97 + i) for i in range(26)},
    **dict.fromkeys((0x131, 0x237), "i"),
    **dict.fromkeys((0x2018, 0x2019, 0x201A, 0x201B, 0x2032, 0x02BC, 0x60, 0xB4), "'"),
    **dict.fromkeys((0x201C, 0x201D, 0x201E, 0x201F, 0x2033, 0xAB, 0xBB), '"'),
    **dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015, 0x2212), "-"),
    0x2800: " ",
}
"""Code point -> what it is the shape of, in small letters."""

FOREIGN: Final[dict[int, str]] = {
    # Cyrillic
    **_pairs("авгеікмнопрстухѕјһԁԛԝьѵҽӏԍ", "abreikmhonpctyxsjhdqwbvelg"),
    # Greek
    **_pairs("αβγεζηικμνορτυχω", "abyeznikmvoptuxw"),
    # Armenian
    **_pairs("ոսօհզցյլ", "nuohqgjl"),
    # Cherokee
    **_pairs("ᎠᎡᎢᎪᎫᎬᎳᎷᎻᏀᏃᏏᏕᏙᏚᏞᏟᏢᏦᏮ", "drtajewmhgzbsvslcpkb"),
}
"""Folded letter of another script -> the Latin one it looks like."""

DIGITS: Final[dict[int, str]] = _pairs("013457892@$!€£¡", "oieastbgzasieli")
"""Digit or sign -> the letter it stands for; 1 and ! stand for l as well."""
