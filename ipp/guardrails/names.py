"""Names of those who are asked, looked up beside everything else.

A name server that hangs keeps the thread that waits for it, long after a question's deadline. The threads
here are nobody else's: no other lookup or question waits for them, and neither does the end of the process.
Loaded only where somebody is asked, because aiohttp comes with it.
"""

from __future__ import annotations

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from dataplane.aside import aside


class Names(AbstractResolver):
    """As the system resolves them; one lookup of a name at a time, which is its caller's doing."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """``OSError`` when there is no address."""
        found = await aside(lambda: socket.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM))
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=proto,
                flags=socket.AI_NUMERICHOST,
            )
            for kind, _, proto, _, address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""
