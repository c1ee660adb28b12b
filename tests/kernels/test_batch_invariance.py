"""A row's bits are the same alone, in a block, and inside a prompt."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.devices import EVERY_CASE, PRESENT, name_of, poisoned
from turbodflash_kernels.cases import Case

PROMPT = 100
BLOCKS = (1, 2, 3, 5, 8, 16)


@pytest.mark.parametrize("device", PRESENT)
@pytest.mark.parametrize(("op", "case"), EVERY_CASE, ids=name_of)
def test_a_row_does_not_know_its_neighbours(op: str, case: Case, device: str) -> None:
    run = case.bind(poisoned(device))
    inputs = case.inputs(PROMPT)
    whole = run(inputs)

    start = 0
    for rows in BLOCKS * 3:  # 105 rows in all, so that every block size starts at odd places
        stop = min(start + rows, PROMPT)
        block = run({name: value[start:stop] for name, value in inputs.items()})
        for name, got in block.items():
            np.testing.assert_array_equal(
                got, whole[name][start:stop], f"{op}: {name} of rows {start} to {stop - 1}"
            )
        start = stop
        if start == PROMPT:
            break
