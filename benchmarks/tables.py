"""Figures as text: aligned tables for a terminal."""

from collections.abc import Sequence


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first column to the left, the others to the right."""
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"a row of {len(row)} cells under a header of {len(header)}: {row}")
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) if not column else cell.rjust(width) for column, (cell, width) in cells)
        for cells in (enumerate(zip(row, widths, strict=True)) for row in [header, *rows])
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(line.rstrip() for line in lines) + "\n"


def number(value: float | None, digits: int = 0) -> str:
    """A number with a fixed count of decimals, a dash for what was not measured."""
    return "-" if value is None else f"{value:,.{digits}f}"
