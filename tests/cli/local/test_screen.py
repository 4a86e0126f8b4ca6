"""What the user sees while the gateway runs."""

import io
from pathlib import Path
from types import SimpleNamespace

from rich.console import Console

from cli.local.metrics import PoolStatus
from cli.local.screen import PlainScreen, addresses, table
from tests.cli.local.plans import two_pools

BUSY = PoolStatus("small", True, 4, 1200, 3, 1, 0.5, 0.0004)
DOWN = PoolStatus("large", False, 0, 0, 0, 0, None, None)


def rendered(before: list[PoolStatus]) -> list[list[str]]:
    """Cells of the table's rows as text."""
    children = {
        f"{part}-{name}": SimpleNamespace(restarts=2)
        for part in ("sim", "epp")
        for name in ("small", "large")
    }
    console = Console(file=io.StringIO(), width=160)
    console.print(table([BUSY, DOWN], before, SimpleNamespace(children=children)))
    lines = console.file.getvalue().splitlines()
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if "│" in line]


def test_table_shows_rates_from_the_second_look_on():
    before = [PoolStatus("small", True, 4, 1190, 3, 1, 0.5, 0.0004)]
    assert rendered([])[0] == ["small", "4", "1200", "0", "3", "1", "50%", "0.40 ms", "4"]
    assert rendered(before)[0] == ["small", "4", "1200", "10", "3", "1", "50%", "0.40 ms", "4"]


def test_table_says_that_a_picker_is_down():
    assert rendered([])[1] == ["large", "picker down", "0", "0", "0", "0", "-", "-", "4"]


def test_restarted_picker_has_no_negative_rate():
    before = [PoolStatus("small", True, 4, 9999, 3, 1, 0.5, 0.0004)]
    assert rendered(before)[0][3] == "0"


def test_plain_screen_writes_addresses_and_commands(tmp_path: Path):
    stream = io.StringIO()
    plan = two_pools(tmp_path)
    PlainScreen(stream).introduce(plan)
    text = stream.getvalue()
    assert addresses(plan) in text
    assert "\n# ask one\ncurl -s http://127.0.0.1:8080/v1/chat/completions " in text
