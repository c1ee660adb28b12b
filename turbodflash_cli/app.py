"""The entry of the program. It is light, so that Ctrl-C is understood from the first moment."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_cli.interrupt import CODE as INTERRUPTED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; the result is its exit code."""
    try:
        from turbodflash_cli import program
    except KeyboardInterrupt:
        return INTERRUPTED
    return program.main(argv)
