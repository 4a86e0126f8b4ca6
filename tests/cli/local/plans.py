"""A plan with fixed ports and paths, for tests that compare what is derived from it."""

from itertools import count
from pathlib import Path

from cli.local.config import parse
from cli.local.plan import Plan, make_plan
from dataplane.processes.ports import LOOPBACK

TWO_POOLS = """
gateway: {port: 8080, workers: 2}
pools:
  - name: small
    models: [llama-8b, "llama-8b:tuned"]
    objectives: {interactive: 10, batch: -1}
    rewrites:
      - matches: [{model: {value: chat}}, {model: {value: llama-8b}}]
        targets: [{modelRewrite: llama-8b, weight: 9}, {modelRewrite: "llama-8b:tuned", weight: 1}]
    simulator: {replicas: 4, profile: h100-8b, flags: [--seed, "7"]}
  - name: large
    models: [qwen/qwen-32b]
    failureMode: FailClose
    picker: {flags: [--v, "4"]}
"""


def counted_ports():
    """A chooser that keeps configured ports and numbers the others from 20000."""
    numbers = count(20_000)

    def choose(configured: int, path: str, address: str = LOOPBACK, hint: str = "") -> int:
        return configured or next(numbers)

    return choose


def two_pools(state: Path) -> Plan:
    """The plan of `TWO_POOLS`."""
    return make_plan(parse(TWO_POOLS), state, counted_ports())
