"""A fleet of simulated model servers, as an operator starts it: `pointsman sim` in its own process."""

from pathlib import Path

import yaml

from benchmarks.children import Child, module_command

MODEL = "bench/model"


class Fleet(Child):
    """Equal replicas in one process; `addresses` are known once it is ready."""

    def __init__(
        self, folder: Path, *, replicas: int, profile: str, time_scale: float, kv_blocks: int, seed: int
    ) -> None:
        self.endpoints_file = folder / "fleet-endpoints.yaml"
        self.endpoints_file.unlink(missing_ok=True)
        self.addresses: list[str] = []
        flags = {
            "model": MODEL,
            "replicas": replicas,
            "port": 0,
            "profile": profile,
            "time-scale": time_scale,
            "kv-cache-size": kv_blocks,
            "max-waiting-queue-length": 1_000_000,
            "seed": seed,
            "endpoints-file": self.endpoints_file,
        }
        arguments = [f"--{name}={value}" for name, value in flags.items()]
        super().__init__("fleet", module_command("cli.main", "sim", *arguments), folder)

    def become_ready(self) -> None:
        """Wait until all replicas listen, which is when the endpoints file appears."""
        self.wait_until(self.endpoints_file.exists)
        document = yaml.safe_load(self.endpoints_file.read_text())
        self.addresses = [f"{entry['address']}:{entry['port']}" for entry in document["endpoints"]]
