"""The gateway of one machine: the document of the control plane that says what it is, and Envoy that runs it.

Envoy starts with a few lines that name its control plane; listener, routes, clusters, endpoints and
certificates come from there, and change there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from cli.machine.api import Api, ApiError
from cli.machine.layout import Layout
from dataplane.addresses import host_port
from dataplane.processes.child import StartError
from dataplane.processes.command import POINTSMAN
from dataplane.processes.ports import PortChooser

GATEWAY: Final = "public"
"""Name of the document that the Envoy of this machine follows."""
PORT_HINT: Final = " (--port 0 does it)"


class GatewayPlace(NamedTuple):
    """Where the gateway is."""

    url: str
    """Where clients connect."""
    admin_port: int
    """Envoy's, on loopback."""
    max_body_bytes: int

    async def answers(self, session: aiohttp.ClientSession) -> bool:
        """Whether it does."""
        try:
            async with session.get(f"{self.url}/v1/models") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def models(self, session: aiohttp.ClientSession) -> list[str]:
        """What clients may ask for, nothing while it does not answer."""
        try:
            async with session.get(f"{self.url}/v1/models") as answer:
                found = await answer.json(content_type=None)
            return [str(each["id"]) for each in found["data"]]
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError):
            return []


async def place(api: Api, choose: PortChooser, port: int | None) -> GatewayPlace | None:
    """Where the gateway is to be; on another port than the document's if one is given, which then has it.

    `ConfigError` when the port is taken, `StartError` when the control plane refuses.
    """
    reply = await api.ask("GET", f"gateways/{GATEWAY}")
    if reply.status == 404:
        return None
    document: dict[str, Any] = reply.body
    spec = document["spec"]
    listener = spec["listener"]
    chosen = choose(listener["port"] if port is None else port, "--port", listener["address"], PORT_HINT)
    if chosen != listener["port"]:
        listener["port"] = chosen
        try:
            await api.call("POST", "apply", [document])
        except ApiError as error:
            raise StartError(f"the gateway cannot be given port {chosen}: {error}") from None
    host = "127.0.0.1" if listener["address"] == "0.0.0.0" else listener["address"]  # noqa: S104 - compared
    scheme = "https" if spec.get("tls") else "http"
    return GatewayPlace(
        f"{scheme}://{host_port(host, chosen)}", choose(0, "admin"), spec["maxRequestBodyBytes"]
    )


def command(layout: Layout, gateway: GatewayPlace) -> Sequence[str | Path]:
    """Runs Envoy with what the control plane says of it, and keeps that for a start without one."""
    return [
        *(*POINTSMAN, "controlplane", "run-gateway", GATEWAY),
        *("--xds-server", layout.xds),
        *("--xds-token-file", layout.worker_token),
        *("--admin-port", str(gateway.admin_port)),
        *("--state-dir", layout.gateway),
    ]
