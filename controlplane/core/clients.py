"""Where a request comes from, as far as that can be known.

Anybody may send ``X-Forwarded-For``. It says something only when proxies stand before the control plane, each
of which appends whom it has seen; how many there are is a setting, and so many entries from the right are
believed. None is unless it is said.
"""

from __future__ import annotations

import ipaddress
from typing import Final

from django.conf import settings
from django.http import HttpRequest

FORWARDED_FOR: Final = "X-Forwarded-For"
IPV6_PREFIX: Final = 64
"""Whoever has one address of IPv6 has at least so many."""
UNKNOWN: Final = "unknown"


def address_of(request: HttpRequest) -> str:
    """The client's address, or its network of IPv6; ``unknown`` for what is none, as a Unix socket."""
    said = request.headers.get(FORWARDED_FOR, "").split(",")
    chain = [*(part.strip() for part in said if part.strip()), request.META.get("REMOTE_ADDR") or ""]
    # A request that has passed fewer proxies has fewer entries, all of them by proxies.
    return normalised(chain[max(0, len(chain) - 1 - settings.TRUSTED_PROXIES)])


def normalised(text: str) -> str:
    """One spelling for everything that one client may come from; some proxies add a port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return UNKNOWN
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), IPV6_PREFIX), strict=False))
    return str(address)
