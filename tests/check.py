"""Format, lint, types and floors, in one command; what `make check` runs."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
STEPS = (
    ("format", ("ruff", "format", "--check", ".")),
    ("lint", ("ruff", "check", ".")),
    ("types", ("mypy",)),
    ("floors", ("pytest", "-q", "tests/test_floors.py")),
)


def main() -> int:
    """Runs every step, also after one failed; 0 when all passed."""
    failed = [name for name, command in STEPS if not passes(name, command)]
    if failed:
        print(f"failed: {', '.join(failed)}")
    return bool(failed)


def passes(name: str, command: tuple[str, ...]) -> bool:
    """Runs one tool as a module of this Python; its output is shown only when it fails."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    ok = done.returncode == 0
    print(f"{'ok  ' if ok else 'FAIL'} {name} ({time.perf_counter() - started:.1f} s)", flush=True)
    if not ok:
        print(done.stdout + done.stderr, flush=True)
    return ok


if __name__ == "__main__":
    sys.exit(main())
