"""A real payload processor as an operator starts it: a process, a config file, a folder of policies."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.children import Child, module_command
from benchmarks.epp_process import wait_until_serving
from dataplane.processes.ports import Ports

CONFIG: dict[str, Any] = {
    "apiVersion": "llm-d.ai/v1alpha1",
    "kind": "PayloadProcessorConfig",
    "plugins": [{"type": "guardrails"}],
    "profiles": [
        {
            "name": "default",
            "plugins": {"request": [{"pluginRef": "guardrails"}], "response": [{"pluginRef": "guardrails"}]},
        }
    ],
}
"""Guardrails both ways, and nothing else."""

OTHERS_POLICY: dict[str, Any] = {
    "apiVersion": "pointsman.dev/v1",
    "kind": "GuardrailPolicy",
    "metadata": {"name": "others"},
    "spec": {
        "models": ["guarded"],
        "rules": [{"name": "words", "type": "keywords", "parameters": {"words": ["forbidden"]}}],
    },
}
"""Holds for none of the requests of the load."""


class Ipp(Child):
    """One running processor; `address` is its ext_proc service, without TLS."""

    def __init__(self, name: str, folder: Path, policies: Sequence[dict[str, Any]]) -> None:
        own = folder / name
        places = own / "policies"
        places.mkdir(parents=True)
        config = own / "config.json"
        config.write_text(json.dumps(CONFIG))
        for policy in policies:
            (places / f"{policy['metadata']['name']}.json").write_text(json.dumps(policy))
        self._ports = Ports(random.SystemRandom())
        grpc_port, self.health_port, metrics_port = (self._ports(0, "port") for _ in range(3))
        self.address = f"127.0.0.1:{grpc_port}"
        flags = {
            "config-file": config,
            "policies-file": places,
            "host": "127.0.0.1",
            "grpc-port": grpc_port,
            "grpc-health-port": self.health_port,
            "metrics-port": metrics_port,
            "secure-serving": "false",
        }
        arguments = [f"--{flag}={value}" for flag, value in flags.items()]
        super().__init__(name, module_command("cli.main", "ipp", *arguments), folder)

    def become_ready(self) -> None:
        """Wait until its health service says that it serves."""
        wait_until_serving(self, self.health_port)
