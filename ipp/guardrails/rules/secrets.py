"""Secrets: keys whose shape says whose they are, and assignments of random text to names that tell.

The whole of a key is a match, however long, except in streams: there a match spans at most what streams hold
back, a longer key is found in pieces, and of one without its beginning any long mix of letters and digits
counts.
"""

from __future__ import annotations

import math
import re
from typing import Final

from ipp.guardrails.matches import MAX_STREAM_MATCH
from ipp.guardrails.scanning import Item

MIN_ENTROPY: Final = 2.7
"""Bits per character of a value that is taken for random."""

MAX_SIGNS: Final = 10
"""One in so many characters of a piece of a key may be neither letter nor digit."""
_WANTED: Final = tuple(re.compile(b"[%b]" % characters) for characters in (b"0-9", b"a-z", b"A-Z"))
_SIGN: Final = re.compile(rb"[+/_=-]")
_GOOGLE: Final = 39
"""Characters of a Google key; a longer run is none."""

_NAMES: Final = (
    r"(?:password|passwd|passwort|contraseña|mot[_ ]de[_ ]passe|secret|api[_-]?key|apikey|access[_-]?key|"
    r"auth[_-]?token|access[_-]?token|token|client[_-]?secret|private[_-]?key|credentials?)"
)
_SHAPES: Final[tuple[tuple[str, str], ...]] = (
    ("anthropic", r"\bsk-ant-[A-Za-z0-9]{2,10}-[A-Za-z0-9_-]{20,200}"),
    ("openai", r"\bsk-(?:proj-|svcacct-|admin-|None-)?[A-Za-z0-9_-]{20,200}"),
    ("aws", r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    ("github", r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9_]{40,255}\b"),
    ("gitlab", r"\bglpat-[A-Za-z0-9_-]{20,64}"),
    ("slack", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,250}\b|\bxapp-\d-[A-Za-z0-9-]{20,250}\b"),
    ("slack", r"\bhooks\.slack\.com/services/T[A-Za-z0-9_]{6,20}/B[A-Za-z0-9_]{6,20}/[A-Za-z0-9_]{16,40}"),
    ("google", r"\bAIza[0-9A-Za-z_-]{35,36}"),
    ("google", r"\bya29\.[0-9A-Za-z_-]{20,450}|\bGOCSPX-[0-9A-Za-z_-]{20,60}"),
    ("stripe", r"\b(?:sk|rk|whsec)_(?:live_|test_)?[0-9A-Za-z]{20,250}\b"),
    ("huggingface", r"\bhf_[A-Za-z0-9]{30,60}\b"),
    ("npm", r"\bnpm_[A-Za-z0-9]{36}\b"),
    ("pypi", r"\bpypi-[A-Za-z0-9_-]{50,250}"),
    ("sendgrid", r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}"),
    ("azure", r"\bAccountKey=[A-Za-z0-9+/]{60,100}={0,2}"),
)
_PEM: Final = r"[A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?"
_WHOLE: Final[tuple[tuple[str, str], ...]] = (
    ("jwt", r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{0,}"),
    (
        "privateKey",
        rf"-----BEGIN {_PEM}-----[A-Za-z0-9+/=:,\s\\.-]*?-----END {_PEM}-----",
    ),
)
_BEGUN: Final[tuple[tuple[str, str], ...]] = (
    ("jwt", r"\beyJ[A-Za-z0-9_-]{8,150}(?:\.(?:eyJ[A-Za-z0-9_-]{8,200}(?:\.[A-Za-z0-9_-]{0,150})?)?)?"),
    (
        "privateKey",
        rf"-----BEGIN {_PEM}-----(?:[A-Za-z0-9+/=]|\s|\\[nr]){{0,200}}",
    ),
)


def _assigned(raw: bytes, start: int, end: int) -> int:
    """The value that a name is given is random: many different characters of several kinds."""
    value = raw[start:end].decode("utf-8", "replace").split(":" if b"=" not in raw[start:end] else "=", 1)[-1]
    value = value.strip(" \t>\"'`:=")
    return end if _random(value) else -1


def _random(value: str) -> bool:
    kinds = (
        any(c.isdigit() for c in value),
        any(c.isupper() for c in value),
        any(c.islower() for c in value),
    )
    if sum(kinds) < 2 or not kinds[0]:
        return False
    size = len(value)
    entropy = -sum(n / size * math.log2(n / size) for n in map(value.count, set(value)))
    return entropy >= MIN_ENTROPY


def _mixed(raw: bytes, start: int, end: int) -> int:
    """What base64 looks like, and paths of URLs do not: digits, both cases, hardly a sign.

    Of a long run that is none each character could begin another candidate; those that lack the same are left
    out, so that every character is looked at a few times and no more.
    """
    value = raw[start:end]
    for wanted in _WANTED:
        if wanted.search(value) is None:
            found = wanted.search(raw, end)
            return -max(start + 1, found.start() - MAX_STREAM_MATCH + 1 if found else len(raw))
    signs = [found.start() for found in _SIGN.finditer(value)]
    allowed = len(value) // MAX_SIGNS
    if len(signs) <= allowed:
        return end
    return -(start + signs[len(signs) - allowed - 1] + 1)


def _keyed(raw: bytes, start: int, end: int) -> int:
    """A key holds a digit; ``sk-`` and words do not make one."""
    whole = not raw.startswith(b"AIza", start) or end - start == _GOOGLE
    return end if whole and any(48 <= c <= 57 for c in raw[start + 3 : end]) else -1


def items(*, streaming: bool) -> list[Item]:
    """The patterns of secrets."""
    found = [Item(f"secret.{kind}", pattern, _keyed) for kind, pattern in _SHAPES]
    found += [Item(f"secret.{kind}", pattern) for kind, pattern in _BEGUN]
    if streaming:
        found.append(Item("secret.piece", rf"[A-Za-z0-9+/_=-]{{60,{MAX_STREAM_MATCH}}}", _mixed))
    else:
        found += [Item(f"secret.{kind}", pattern) for kind, pattern in _WHOLE]
    assigned = (
        rf"(?i)\b(?:[a-z0-9]{{1,30}}[_-]){{0,3}}{_NAMES}[\"'`]?\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}[\"'`]?"
        r"[A-Za-z0-9/+_.~!@#$%^&*=-]{8,128}"
    )
    found.append(Item("secret.assignment", assigned, _assigned))
    found.append(Item("secret.url", r"\b[a-z][a-z0-9+]{1,15}://[^\s/:@\"']{1,64}:[^\s/@\"']{3,128}@"))
    return found
