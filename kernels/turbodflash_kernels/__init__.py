"""Kernels: one folder per op, with a plain reference and one file per kind of device.

`device.open_device` opens a device; `Device.bind` picks the implementation of an op. The contract
of an op (shapes, types, meaning) is the docstring of its folder.
"""

from __future__ import annotations

from pathlib import Path


def every_op() -> list[str]:
    """Names of all ops, read from the folders alone: nothing is imported."""
    return sorted(file.parent.name for file in Path(__file__).parent.glob("*/ref.py"))
