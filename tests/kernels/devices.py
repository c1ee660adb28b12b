"""Which devices there are to test, and what plain arithmetic loses."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels import every_op
from turbodflash_kernels._reference import ReferenceDevice
from turbodflash_kernels.cases import Case, Values
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.linear import ref as linear

PRESENT = ["reference", *(["cpu"] if find_spec("turbodflash_kernels._cpu.device") else [])]

EVERY_CASE = [
    (op, case)
    for op in every_op()
    for case in import_module(f"turbodflash_kernels.{op}.cases").CASES
]


def poisoned(name: str) -> Device:
    """The device, with NaN in fresh memory."""
    device = open_device(name)
    device.poison = True
    return device


def name_of(value: Any) -> str | None:
    return value if isinstance(value, str) else str(value)


def truth() -> Device:
    return ReferenceDevice(np.float64)


def yardstick(name: str, case: Case) -> Device:
    """Plain arithmetic in the precision that a device promises."""
    rounds = name != "reference" and case.lossy_weights
    return RoundedActivations() if rounds else ReferenceDevice()


class RoundedActivations(ReferenceDevice):
    """float32, with the activations of `linear` rounded to 8 bits per 32."""

    def bind(self, op: str, /, **static: Any) -> Callable[..., Any]:
        if op != "linear":
            return super().bind(op, **static)
        weight, prologue, bias = static["weight"], static["prologue"], static["bias"]

        def rounded(x: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
            return linear.product(
                round_to_8_bits(linear.activations(x, prologue)), weight, bias, residual
            )

        return rounded


def round_to_8_bits(x: NDArray[Any]) -> NDArray[Any]:
    blocks = x.reshape(len(x), -1, 32)
    unit = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    return (np.rint(blocks / np.where(unit == 0, 1, unit)) * unit).reshape(x.shape)


def run(case: Case, device: Device, rows: int) -> Values:
    return case.bind(device)(case.inputs(rows))
