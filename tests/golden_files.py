"""Where golden numbers lie."""

from __future__ import annotations

from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
SHARED_GOLDEN = Path(__file__).parents[2] / "shared" / "golden"


def shared_golden(pattern: str) -> list[Path]:
    """Files of the larger data set that match, for parametrising; empty in a bare clone."""
    return sorted(SHARED_GOLDEN.glob(pattern))
