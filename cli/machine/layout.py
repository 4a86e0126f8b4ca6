"""Where everything of one run is: folders, ports, addresses, and the environment of its processes.

<state>/profile.json        address and token for the commands of this machine
<state>/logs/               output of each part; logs.previous is the run before
<state>/controlplane/       database (SQLite), secrets, and the fleet's files
<state>/valkey/             configuration and data
<state>/gateway/            what Envoy was last told, and its log
<state>/ipp/                what the payload processor was last told
<state>/worker-token        with which Envoy asks what it is to do; pickers have tokens of their own
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cli import profile
from controlplane import database, environment
from dataplane import valkey
from dataplane.processes.ports import LOOPBACK, PortChooser

DEFAULT_WEB_PORT: Final = 8800
WEB_HINT: Final = " (--web-port 0 does it for one run)"

_NOT_FOR_CHILDREN: Final = frozenset(
    {profile.VARIABLE, "POINTSMAN_TOKEN", "POINTSMAN_URL", "DJANGO_SETTINGS_MODULE", environment.HOSTS}
)
"""What is said to commands, and names under which others would reach a control plane that is on loopback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Fixed before the first process starts."""

    state: Path
    web_port: int
    xds_port: int
    xds_metrics_port: int
    valkey_port: int
    valkey_password: str
    outside_valkey: str = ""
    """Address of a server that somebody else runs; empty = one of ours."""
    is_alone: bool = False
    """Whether databases and servers that the environment names are left alone."""

    @property
    def logs(self) -> Path:
        """Folder of the log files, one per part."""
        return self.state / "logs"

    @property
    def web(self) -> str:
        """The control plane's address for people and programs."""
        return f"http://{LOOPBACK}:{self.web_port}"

    @property
    def xds(self) -> str:
        """Where workers get their configuration."""
        return f"{LOOPBACK}:{self.xds_port}"

    @property
    def xds_pages(self) -> str:
        """Where that server tells how it fares."""
        return f"http://{LOOPBACK}:{self.xds_metrics_port}"

    @property
    def valkey_folder(self) -> Path:
        """Of the server we run."""
        return self.state / "valkey"

    @property
    def valkey(self) -> str:
        """Address of the server, with its password."""
        return self.outside_valkey or f"redis://:{self.valkey_password}@{LOOPBACK}:{self.valkey_port}/0"

    @property
    def controlplane(self) -> Path:
        """The control plane's state folder."""
        return self.state / "controlplane"

    @property
    def profile(self) -> Path:
        """For the commands of this machine."""
        return self.state / profile.NAME

    @property
    def worker_token(self) -> Path:
        """File with the token of Envoy."""
        return self.state / "worker-token"

    @property
    def processor_token(self) -> Path:
        """File with the token of the payload processor."""
        return self.state / "processor-token"

    @property
    def processor(self) -> Path:
        """What the payload processor was last told."""
        return self.state / "ipp" / "received"

    @property
    def gateway(self) -> Path:
        """Envoy's last good configuration and log."""
        return self.state / "gateway"

    @property
    def seeds(self) -> Path:
        """There while what a fresh database begins with has not been applied."""
        return self.state / "seeds-to-apply"

    def environment(self) -> dict[str, str]:
        """Of every process."""
        dropped = _NOT_FOR_CHILDREN | ({environment.DATABASE_URL} if self.is_alone else set())
        kept = {name: value for name, value in os.environ.items() if name not in dropped}
        return kept | {environment.STATE: str(self.controlplane), valkey.VARIABLE: self.valkey}


def make_layout(state: Path, web_port: int, choose: PortChooser, *, is_alone: bool = False) -> Layout:
    """Fix ports and paths. Raises `ConfigError` when the web port is taken, or the environment names a
    database or a Valkey server by what is no address."""
    named = os.environ.get(environment.DATABASE_URL)
    if named and not is_alone:
        database.of_url(named, environment.DATABASE_URL)
    return Layout(
        state=state,
        web_port=choose(web_port, "--web-port", LOOPBACK, WEB_HINT),
        xds_port=choose(0, "xds"),
        xds_metrics_port=choose(0, "xds-metrics"),
        valkey_port=choose(0, "valkey"),
        valkey_password=secrets.token_urlsafe(24),
        outside_valkey=""
        if is_alone
        else valkey.address(os.environ.get(valkey.VARIABLE, ""), valkey.VARIABLE),
        is_alone=is_alone,
    )
