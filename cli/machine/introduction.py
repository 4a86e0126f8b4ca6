"""What is printed when everything runs: where it is, what is shown once, and what to try."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from cli import profile
from cli.machine.machine import Machine, Once
from cli.terminal import Try
from dataplane.processes.ports import LOOPBACK

JSON = "-H 'content-type: application/json'"
QUESTION = '"messages": [{"role": "user", "content": "Where does this train go?"}]'


def introduction(machine: Machine) -> str:
    """Addresses and secrets."""
    layout, once = machine.layout, machine.once
    gateway = "none; apply a Gateway" if machine.gateway is None else machine.gateway.url
    lines = [f"gateway: {gateway}", f"console and control plane: {layout.web}"]
    if once.password is None:
        lines.append(
            f"  administrator {once.administrator} "
            f"('pointsman controlplane password {once.administrator}' draws another password)"
        )
    lines += [
        *secrets(once),
        f"API: {layout.web}/api/v1/schema describes it; commands on this machine find it by {layout.profile}",
        f"metrics of the discovery server: {layout.xds_pages}/metrics",
        f"logs: {layout.logs}",
        "Ctrl-C stops everything.",
    ]
    return "\n".join(lines)


def secrets(once: Once) -> list[str]:
    """What a first start shows and no other."""
    lines = []
    if once.password is not None:
        lines.append(
            f"  administrator {once.administrator}, with this password, which is shown once: {once.password}"
        )
    if once.keys:
        lines.append("keys of the examples' tenants, shown once:")
        lines += [f"  {name}: {key}" for name, key in once.keys.items()]
    return lines


def program(machine: Machine) -> str:
    """How the command is called, so that it finds this control plane."""
    called = shlex.quote(str(Path(sys.executable).parent / "pointsman"))
    if machine.layout.profile == profile.DEFAULT:
        return called
    return f"{profile.VARIABLE}={shlex.quote(str(machine.layout.profile))} {called}"


async def machine_tries(machine: Machine) -> Sequence[Try]:
    """Return what to try, in that order, as far as the control plane has what it takes."""
    pointsman = program(machine)
    reports = await machine.reports()
    models = [] if machine.gateway is None else await machine.gateway.models(machine.session)
    found: list[Try] = []
    if machine.gateway is not None and models:
        chat = f"{machine.gateway.url}/v1/chat/completions {JSON}"
        found.append(("ask a model", f'curl -s {chat} -d \'{{"model": "{models[0]}", {QUESTION}}}\''))
        body = f'{{"model": "{models[-1]}", "stream": true, {QUESTION}}}'
        found.append(("stream from another", f"curl -sN {chat} -d '{body}'"))
    if ready := [(name, report) for name, report in reports.items() if report.get("ports")]:
        name, report = ready[0]
        decisions = f"http://{LOOPBACK}:{report['ports']['metrics']}/debug/decisions?limit=1"
        found += [
            (f"why the last endpoint of {name} was picked", f"curl -s '{decisions}'"),
            ("what runs for it, and how it fares", f"{pointsman} get pools {name} --status"),
        ]
    pickers = await machine.api.rows("endpointpickerconfigs")
    if pickers:
        name = pickers[0]["metadata"]["name"]
        change = "sed '0,/weight: 2$/s//weight: 5/'"
        found += [
            (
                f"let waiting requests count more in {name}, while it serves",
                f"{pointsman} get endpointpickerconfigs {name} | {change} | {pointsman} apply -",
            ),
            (
                "who runs that, and back again",
                f"{pointsman} rollout status {name}; {pointsman} rollout back {name}",
            ),
        ]
    return found
