"""Every op with all of its cases, against float64, and row by row."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

from gpu_checks.report import Setting
from tests.kernels.devices import poisoned, run, truth, yardstick
from turbodflash_kernels import every_op
from turbodflash_kernels.errors import NoKernel

ROWS_OF_YARDSTICK = 48  # one number's error says nothing about what arithmetic loses
BLOCKS = (1, 2, 3, 5, 8, 16)
LISTS = ("CASES", "TYPE_CASES", "FULL")


def ops(setting: Setting) -> None:
    """An op loses at most twice what plain arithmetic of its precision does; no lane is left."""
    for op, case in _cases(setting):

        def attempt(op: str = op, case: Any = case) -> None:
            rows = max(case.rows, ROWS_OF_YARDSTICK)
            exact, plain = (
                run(case, truth(), rows),
                run(case, yardstick(setting.device, case)(), rows),
            )
            for name, got in run(case, poisoned(setting.device), case.rows).items():
                allowed = 2 * np.abs(plain[name] - exact[name]).max() + 1e-6
                error = np.abs(got - exact[name][: case.rows]).max()
                setting.report.check(error <= allowed, f"{op} {case}: {error:.2e} > {allowed:.2e}")

        _trying(setting, f"{op} {case}", attempt)


def rows(setting: Setting) -> None:
    """A row has the same bits alone and beside others, up to the widest verified block."""
    for op, case in _cases(setting):

        def attempt(op: str = op, case: Any = case) -> None:
            bound = case.bind(poisoned(setting.device))
            inputs = case.inputs(max(BLOCKS))
            whole = bound(inputs)
            for block in BLOCKS:
                part = bound({name: value[:block] for name, value in inputs.items()})
                same = all(np.array_equal(part[name], whole[name][:block]) for name in whole)
                setting.report.check(same, f"{op} {case}: {block} rows differ from {max(BLOCKS)}")

        _trying(setting, f"{op} {case}", attempt)


def _cases(setting: Setting) -> Iterator[tuple[str, Any]]:
    """Op after op in turns, so that a time limit cuts all of them alike."""
    found: dict[str, list[Any]] = {}
    for op in every_op():
        module = import_module(f"turbodflash_kernels.{op}.cases")
        found[op] = [case for each in LISTS for case in getattr(module, each, ())]
        if not setting.real:
            found[op] = found[op][:: max(len(found[op]) // 3, 1)]
    for turn in range(max(map(len, found.values()))):
        for op, cases in found.items():
            if turn < len(cases):
                if setting.over():
                    return
                yield op, cases[turn]


def _trying(setting: Setting, what: str, attempt: Any) -> None:
    """A kernel that the device refuses is counted apart: it says itself that it does not apply."""

    def unless_refused() -> None:
        try:
            attempt()
        except NoKernel as why:
            refused = setting.report.figures.setdefault("refused", {})
            refused[what] = str(why)

    setting.report.trying(what, unless_refused)
