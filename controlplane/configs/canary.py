"""How the size of a canary is written: ``10%`` of the workers, or ``2`` of them."""

from __future__ import annotations

import re
from typing import Final

from controlplane.configs.rollout import Canary
from dataplane.errors import ConfigError

_SHARE: Final = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,4})?)%")
_COUNT: Final = re.compile(r"[1-9][0-9]{0,5}")


def parse_canary(text: str) -> Canary:
    """The canary a text means. ``ConfigError`` when it means none."""
    if (found := _SHARE.fullmatch(text)) and (share := float(found[1])) > 0:
        return Canary(share=share / 100)
    if _COUNT.fullmatch(text):
        return Canary(count=int(text))
    raise ConfigError('must be a share of the workers such as "10%", or a number of them such as "2"')


def canary_text(canary: Canary) -> str:
    """The canary as it is written."""
    return str(canary.count) if canary.share is None else f"{canary.share * 100:g}%"
