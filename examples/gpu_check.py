"""One card, checked and timed: is every number right, and how near is it to what memory allows?

python examples/gpu_check.py [--only ops,passes] [--seconds 480] [--json out.json]

Sections run one after the other, each for its share of the time; what fails is noted and the next
one runs. Where TRITON_INTERPRET=1 is set there is no card: kernels are interpreted, on tiny shapes,
and times mean nothing. Weights of the timed models are random; no file is read but the golden data
of the tests. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / folder) for folder in ("", "engine", "kernels")]

from gpu_checks import report  # noqa: E402, after the path

SHARES: Mapping[str, float] = {
    "ops": 0.3,
    "rows": 0.1,
    "recorded": 0.05,
    "graphs": 0.05,
    "lossless": 0.1,
    "products": 0.1,
    "passes": 0.3,
}
"""Sections in their order, and the part of the time that each may take."""


def main() -> int:
    asked = arguments()
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    shares = {name: SHARES[name] for name in asked.only}
    found: dict[str, Any] = {"machine": machine(), "interpreted": interpreted, "sections": {}}
    for name, share in shares.items():
        seconds = asked.seconds * share / sum(shares.values())
        done = report.run(section(name), asked.device, seconds, real=not interpreted)
        found["sections"][name] = report.as_json(done)
        print(summary(name, done), flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({name: each["figures"] for name, each in found["sections"].items()}, indent=1))
    return int(any(not each["ok"] for each in found["sections"].values()))


def summary(name: str, done: report.Report) -> str:
    """A line, and one for each failure."""
    line = f"{name}: {done.checked} checked, {done.failed} failed, {done.seconds} s"
    return "\n  ".join([line + " (cut short)" * done.cut, *done.failures])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = ", ".join(SHARES)
    parser.add_argument(
        "--only",
        type=lambda words: [chosen(word) for word in words.split(",")],
        default=list(SHARES),
        help=f"sections by commas: {known}",
    )
    parser.add_argument("--seconds", type=float, default=480.0, help="for all sections together")
    parser.add_argument("--json", type=Path, help="a file that all figures are written to")
    parser.add_argument("--device", default="gpu", help="what sections of numbers compare")
    return parser.parse_args()


def chosen(name: str) -> str:
    if name not in SHARES:
        raise argparse.ArgumentTypeError(f"no section {name!r}; there are {', '.join(SHARES)}")
    return name


def section(name: str) -> Callable[[report.Setting], None]:
    """Imported only when it runs: one that cannot be imported fails alone."""

    def run(setting: report.Setting) -> None:
        if name in ("ops", "rows"):
            from gpu_checks import ops as module
        elif name in ("products", "passes"):
            from gpu_checks import speed as module
        else:
            from gpu_checks import models as module
        getattr(module, name)(setting)

    return run


def machine() -> dict[str, str]:
    """What was measured: a figure without it means nothing."""
    import torch
    import triton

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "card": card,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
    }


if __name__ == "__main__":
    sys.exit(main())
