"""What the user sees while the gateway runs."""

import io
from pathlib import Path

from rich.console import Console

from cli.local.metrics import PoolStatus
from cli.local.screen import HEADINGS, addresses, pool_line, pools_table
from cli.local.tries import tries
from cli.terminal import PlainScreen
from tests.cli.local.plans import two_pools

BUSY = PoolStatus("small", True, 4, 1200, 3, 1, 0.5, 0.0004)
DOWN = PoolStatus("large", False, 0, 0, 0, 0, None, None)


def drawn(rows: list[PoolStatus], before: list[PoolStatus], width: int) -> list[str]:
    """Lines of the table as text."""
    restarts = {status.name: 4 for status in rows}
    console = Console(file=io.StringIO(), width=width)
    console.print(pools_table(rows, before, restarts))
    return console.file.getvalue().splitlines()


def rendered(before: list[PoolStatus]) -> list[list[str]]:
    """Words of the table's rows."""
    return [line.split() for line in drawn([BUSY, DOWN], before, 80)[-3:-1]]


def test_table_fits_80_columns():
    full = PoolStatus("llama-3.1-8b-instruct", True, 1000, 12_345_678, 1234, 12_345, 1.0, 0.01234)
    _, heading, _, row = (line for line in drawn([full], [], 80) if line.strip())
    assert " ".join(heading.split()) == " ".join(["pool", *HEADINGS])
    assert row.split() == [
        "llama-3.1-8b-instruct",
        "1000",
        "12345678",
        "0",
        "1234",
        "12345",
        "100%",
        "12.34",
        "4",
    ]


def test_table_shows_rates_from_the_second_look_on():
    before = [PoolStatus("small", True, 4, 1190, 3, 1, 0.5, 0.0004)]
    assert rendered([])[0] == ["small", "4", "1200", "0", "3", "1", "50%", "0.40", "4"]
    assert rendered(before)[0] == ["small", "4", "1200", "10", "3", "1", "50%", "0.40", "4"]


def test_long_pool_name_is_cut_and_takes_no_room_from_the_figures():
    full = PoolStatus("a" * 63, True, 1000, 12_345_678, 1234, 12_345, 1.0, 0.01234)
    row = drawn([full], [], 80)[-2].split()
    assert row == ["a" * 20 + "…", "1000", "12345678", "0", "1234", "12345", "100%", "12.34", "4"]


def test_table_says_that_a_picker_is_down():
    assert rendered([])[1] == ["large", "down", "0", "0", "0", "0", "-", "-", "4"]


def test_restarted_picker_has_no_negative_rate():
    before = [PoolStatus("small", True, 4, 9999, 3, 1, 0.5, 0.0004)]
    assert rendered(before)[0][3] == "0"


def test_plain_screen_writes_addresses_and_commands(tmp_path: Path):
    stream = io.StringIO()
    plan = two_pools(tmp_path)
    PlainScreen(stream).introduce(addresses(plan), tries(plan))
    text = stream.getvalue()
    assert addresses(plan) in text
    assert "\n# ask one\ncurl -s http://127.0.0.1:8080/v1/chat/completions " in text


def test_a_pools_line_is_due_at_once_when_its_picker_or_endpoints_go():
    assert pool_line(BUSY)[2] == (True, 4)
    assert pool_line(DOWN) == ("large", "large: its picker does not answer", (False, 0))
