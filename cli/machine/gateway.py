"""The gateway of one machine: the document of the control plane that says what it is, and Envoy that runs it.

Envoy starts with a few lines that name its control plane; listener, routes, clusters, endpoints and
certificates come from there, and change there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp

from cli.local.commands import MESSAGE_OVERHEAD_BYTES
from cli.machine.api import Api, ApiError
from cli.machine.layout import Layout
from dataplane.addresses import host_port
from dataplane.processes.child import StartError
from dataplane.processes.command import POINTSMAN
from dataplane.processes.ports import PortChooser

GATEWAY: Final = "public"
"""Name of the document that the Envoy of this machine follows."""
PROCESSOR: Final = "default"
"""Name of the configuration that the payload processor of this machine follows."""
PORT_HINT: Final = " (--port 0 does it)"
LOOPBACK: Final = "127.0.0.1"


class ProcessorPlace(NamedTuple):
    """Where the payload processor of this machine is, on loopback."""

    port: int
    health_port: int
    metrics_port: int

    async def answers(self, session: aiohttp.ClientSession) -> bool:
        """Whether it is ready."""
        try:
            async with session.get(f"http://{LOOPBACK}:{self.metrics_port}/readyz") as answer:
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


class GatewayPlace(NamedTuple):
    """Where the gateway is."""

    url: str
    """Where clients connect."""
    admin_port: int
    """Envoy's, on loopback."""
    max_body_bytes: int
    processor: ProcessorPlace | None = None
    """None = the document names none, or one that somebody else runs."""

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
    processor = place_processor(spec.get("payloadProcessor"), choose, is_free=port == 0)
    if chosen != listener["port"] or is_moved(spec, processor):
        listener["port"] = chosen
        if processor is not None:
            spec["payloadProcessor"] |= {"port": processor.port, "healthPort": processor.health_port}
        try:
            await api.call("POST", "apply", [document])
        except ApiError as error:
            raise StartError(f"the gateway cannot be given port {chosen}: {error}") from None
    host = "127.0.0.1" if listener["address"] == "0.0.0.0" else listener["address"]  # noqa: S104 - compared
    scheme = "https" if spec.get("tls") else "http"
    return GatewayPlace(
        f"{scheme}://{host_port(host, chosen)}", choose(0, "admin"), spec["maxRequestBodyBytes"], processor
    )


def place_processor(
    said: dict[str, Any] | None, choose: PortChooser, *, is_free: bool
) -> ProcessorPlace | None:
    """Where the gateway's payload processor is to be, if it is for this machine to run it.

    ``is_free``: on any ports, rather than those of the document. `ConfigError` when one is taken.
    """
    if said is None or said["address"] != LOOPBACK or said["name"] != PROCESSOR:
        return None
    port, health_port = (
        choose(0 if is_free else said[name], f"payloadProcessor.{name}", LOOPBACK, PORT_HINT)
        for name in ("port", "healthPort")
    )
    return ProcessorPlace(port, health_port, choose(0, "ipp-metrics"))


def is_moved(spec: dict[str, Any], processor: ProcessorPlace | None) -> bool:
    """Whether the processor is somewhere else than the document says."""
    said = spec.get("payloadProcessor") or {}
    return processor is not None and (said["port"], said["healthPort"]) != processor[:2]


def processor_command(layout: Layout, gateway: GatewayPlace, place: ProcessorPlace) -> Sequence[str | Path]:
    """Runs the payload processor with what the control plane says of it."""
    return [
        *(*POINTSMAN, "ipp", "--name", PROCESSOR, "--host", LOOPBACK, "--secure-serving=false"),
        *("--xds-server", layout.xds, "--xds-token-file", layout.processor_token),
        *("--xds-cache", layout.processor, "--xds-node-id", f"{PROCESSOR}-of-this-machine"),
        *("--grpc-port", str(place.port), "--grpc-health-port", str(place.health_port)),
        *("--metrics-port", str(place.metrics_port)),
        *("--max-request-body", str(gateway.max_body_bytes)),
        *("--grpc-max-recv-msg-size", str(gateway.max_body_bytes + MESSAGE_OVERHEAD_BYTES)),
    ]


def command(layout: Layout, gateway: GatewayPlace) -> Sequence[str | Path]:
    """Runs Envoy with what the control plane says of it, and keeps that for a start without one."""
    return [
        *(*POINTSMAN, "controlplane", "run-gateway", GATEWAY),
        *("--xds-server", layout.xds),
        *("--xds-token-file", layout.worker_token),
        *("--admin-port", str(gateway.admin_port)),
        *("--state-dir", layout.gateway),
    ]
