"""Columns of text, the same on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence


def columns(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows as lines; a column is as wide as its widest cell, and figures stand to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    right = [all(_is_figure(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if to_the_right else cell.ljust(width)
            for cell, width, to_the_right in zip(row, widths, right, strict=True)
        ]
        lines.append(indent + "  ".join(cells).rstrip())
    return lines


def _is_figure(cell: str) -> bool:
    return cell[:1].isdigit() or (cell[:1] in "-+" and cell[1:2].isdigit())
