"""The table of machine code that a test run ends with."""

from __future__ import annotations

HEADER = (
    "kernel",
    "GPU",
    "registers",
    "spills",
    "shared bytes",
    "LDG.128",
    "LDS.128 in loop",
    "multiply-adds of loop",
    "seconds to compile",
)
ROWS: list[tuple[object, ...]] = []


def lines() -> list[str]:
    """Give the table, with columns of one width each; nothing if there are no rows."""
    if not ROWS:
        return []
    rows = [HEADER, *(tuple(map(str, row)) for row in sorted(ROWS, key=str))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
