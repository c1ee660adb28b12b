"""Every implementation of every op means what its reference means."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from tests.kernels.devices import SWEPT, Yardstick, name_of, poisoned, run, truth, yardstick
from turbodflash_kernels.cases import Case, Values

# the yardstick is taken over more rows than the case has: the worst error of a single number says
# nothing about what the arithmetic loses
ROWS_OF_YARDSTICK = 48


@pytest.mark.parametrize(("op", "case", "device"), SWEPT, ids=name_of)
def test_loses_no_more_than_plain_arithmetic(op: str, case: Case, device: str) -> None:
    rows = max(case.rows, ROWS_OF_YARDSTICK)
    exact, plain = known(case, truth, rows), known(case, yardstick(device, case), rows)
    fast = run(case, poisoned(device), case.rows)

    assert fast.keys() == exact.keys()
    for name, got in fast.items():
        assert got.shape == (case.rows, *exact[name].shape[1:])
        assert not np.isnan(got).any(), f"{op} on {device} left holes in {name}"
        allowed = 2 * np.abs(plain[name] - exact[name]).max() + 1e-6
        worst = np.abs(got - exact[name][: case.rows]).max()
        assert worst <= allowed, f"{name}: {worst:.2e} > {allowed:.2e}"


@lru_cache(maxsize=4)  # the devices of a case come one after the other
def known(case: Case, kind: Yardstick, rows: int) -> Values:
    """What a device of numpy gives."""
    return run(case, kind(), rows)
