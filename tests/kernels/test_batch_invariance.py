"""A row's bits are the same alone, in a block, and inside a prompt."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from tests.kernels.devices import EVERY_CASE, PRESENT, name_of, on_gpu, poisoned, quick_cases
from turbodflash_kernels.cases import Case

PROMPT = 100
BLOCKS = (1, 2, 3, 5, 8, 16) * 3  # every size of a block starts at odd places

FEW = 32
"""Rows that a GPU decodes or verifies together; a prompt is read by other kernels."""

FEW_BLOCKS = (1, 2, 3, 5, 8, 13)

IN_BLOCKS = {"reference": (FEW, FEW_BLOCKS), "cpu": (PROMPT, BLOCKS)}
"""How many rows, and in which blocks. Of the reference few: it has no kernels for many."""

OF_BLOCKS = ("delta_net", "tap_conv")
"""Ops of which a row of a case is a whole block. Their own tests tell what rows of one may know."""

ON_GPU = [
    (op, case)
    for op in on_gpu()
    if op not in OF_BLOCKS
    for case in quick_cases(op)[4::15]
    if "tree" not in str(case)
]


@pytest.mark.parametrize("device", PRESENT)
@pytest.mark.parametrize(("op", "case"), EVERY_CASE, ids=name_of)
def test_a_row_does_not_know_its_neighbours(op: str, case: Case, device: str) -> None:
    check(op, case, device, *IN_BLOCKS[device])


@pytest.mark.parametrize(("op", "case"), ON_GPU, ids=name_of)
def test_few_rows_do_not_know_each_other_on_a_gpu(op: str, case: Case) -> None:
    check(op, case, "gpu", FEW, FEW_BLOCKS)


def check(op: str, case: Case, device: str, rows: int, blocks: tuple[int, ...]) -> None:
    """Rows are the same in blocks of these sizes, one after the other, as all together."""
    run = case.bind(poisoned(device))
    inputs = case.inputs(rows)
    whole = run(inputs)
    for size, end in zip(blocks, accumulate(blocks), strict=True):
        start, stop = end - size, min(end, rows)
        if start >= stop:
            break
        block = run({name: value[start:stop] for name, value in inputs.items()})
        for name, got in block.items():
            np.testing.assert_array_equal(
                got, whole[name][start:stop], f"{op}: {name} of rows {start} to {stop - 1}"
            )
