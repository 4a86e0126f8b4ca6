"""The one spelling of a host with a port: IPv6 addresses in brackets, as URLs and headers have them."""

from __future__ import annotations


def host_port(host: str, port: int) -> str:
    """``10.0.0.1:80``, ``[fd00::1]:80``, ``name.example:80``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_host_port(authority: str) -> tuple[str, int]:
    """The inverse of ``host_port``. ``ValueError`` when there is no port."""
    host, _, port = authority.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)
