"""A real picker as an operator starts it: a process of its own, a config file, an endpoints file."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from benchmarks.children import Child, module_command
from dataplane.processes.ports import Ports

HEALTH_METHOD = "/grpc.health.v1.Health/Check"
SERVING = b"\x08\x01"
"""HealthCheckResponse with status SERVING."""

POOL = "bench"


def default_config(endpoints_file: Path | None) -> dict[str, Any]:
    """The picker's built-in configuration, written out; with endpoints from a file when one is named."""
    config = built_in_config()
    if endpoints_file is not None:
        config["plugins"].append({"type": "file-discovery", "parameters": {"path": str(endpoints_file)}})
        config["dataLayer"]["discovery"] = {"pluginRef": "file-discovery"}
    return config


def built_in_config() -> dict[str, Any]:
    """What a picker without a configuration file uses."""
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [
            {"type": "queue-scorer"},
            {"type": "kv-cache-utilization-scorer"},
            {"type": "prefix-cache-scorer"},
            {"type": "metrics-data-source"},
            {"type": "core-metrics-extractor"},
        ],
        "schedulingProfiles": [
            {
                "name": "default",
                "plugins": [
                    {"pluginRef": "queue-scorer", "weight": 2},
                    {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                    {"pluginRef": "prefix-cache-scorer", "weight": 3},
                ],
            }
        ],
        "dataLayer": {
            "sources": [
                {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]}
            ]
        },
    }


def endpoints_document(addresses: Sequence[str]) -> dict[str, Any]:
    """`IP:PORT` endpoints in the form of an endpoints file."""
    entries = []
    for index, text in enumerate(addresses):
        host, _, port = text.rpartition(":")
        entries.append({"name": f"replica-{index}", "address": host, "port": port})
    return {"endpoints": entries}


class Epp(Child):
    """One running picker; `address` is its ext_proc service, without TLS."""

    def __init__(
        self,
        endpoints: Sequence[str],
        folder: Path,
        *,
        scrape_interval: str = "50ms",
        config: Path | None = None,
    ) -> None:
        endpoints_file = folder / "endpoints.yaml"
        endpoints_file.write_text(json.dumps(endpoints_document(endpoints)))
        if config is None:
            config = folder / "epp.yaml"
            config.write_text(json.dumps(default_config(endpoints_file)))
        self._ports = Ports(random.SystemRandom())
        grpc_port, self.health_port, self.metrics_port = (self._ports(0, "port") for _ in range(3))
        self.address = f"127.0.0.1:{grpc_port}"
        flags = {
            "pool-name": POOL,
            "config-file": config,
            "grpc-port": grpc_port,
            "grpc-health-port": self.health_port,
            "metrics-port": self.metrics_port,
            "secure-serving": "false",
            "refresh-metrics-interval": scrape_interval,
        }
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        super().__init__("epp", module_command("cli.main", "epp", *arguments), folder)

    def become_ready(self) -> None:
        """Wait until its health service says that it serves."""
        wait_until_serving(self, self.health_port)


def wait_until_serving(child: Child, health_port: int) -> None:
    """Return when the process's health service says that it serves."""
    with grpc.insecure_channel(f"127.0.0.1:{health_port}") as channel:
        check: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(HEALTH_METHOD)

        def serves() -> bool:
            try:
                return bool(check(b"", timeout=1.0) == SERVING)
            except grpc.RpcError:
                return False

        child.wait_until(serves)
