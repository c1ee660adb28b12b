"""Which devices there are to test, and what plain arithmetic loses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.interpreter import improve
from turbodflash_kernels import every_op
from turbodflash_kernels._cpu import isa
from turbodflash_kernels._reference import ReferenceDevice, ReferenceWeight
from turbodflash_kernels.attend import ref as attend
from turbodflash_kernels.cases import Case, Values
from turbodflash_kernels.device import Device, open_device
from turbodflash_kernels.linear import ref as linear
from turbodflash_kernels.moe import ref as moe
from turbodflash_kernels.op import Part

PRESENT = ["reference", "cpu"]

improve()


def on_gpu() -> list[str]:
    """Ops that are swept there: all of them, so that one without a kernel fails."""
    return every_op()


def quick_cases(op: str) -> Sequence[Case]:
    """Those that are quick enough for a device that is interpreted."""
    cases = import_module(f"turbodflash_kernels.{op}.cases")
    found: Sequence[Case] = getattr(cases, "QUICK", cases.CASES)
    return found


EVERY_CASE = [
    (op, case)
    for op in every_op()
    for case in import_module(f"turbodflash_kernels.{op}.cases").CASES
]

ALL_CACHE_TYPES = ["reference", "cpu"]
"""Devices that have kernels for every cache type."""

CACHE_TYPE_CASES = [
    (op, case)
    for op in ("attend", "rope_store")
    for case in import_module(f"turbodflash_kernels.{op}.cases").TYPE_CASES
]

SWEPT = [(op, case, device) for op, case in EVERY_CASE for device in PRESENT]
SWEPT += [(op, case, device) for op, case in CACHE_TYPE_CASES for device in ALL_CACHE_TYPES]
SWEPT += [(op, case, "gpu") for op in on_gpu() for case in quick_cases(op)]
_place = {case: place for place, case in enumerate(dict.fromkeys(each[:2] for each in SWEPT))}
SWEPT.sort(key=lambda each: _place[each[:2]])  # a case's devices are compared with one truth


def poisoned(name: str) -> Device:
    """The device, with NaN in fresh memory."""
    device = open_device(name)
    device.poison = True
    return device


def name_of(value: Any) -> str | None:
    return value if isinstance(value, str) else str(value)


def truth() -> Device:
    return ReferenceDevice(np.float64)


Yardstick: TypeAlias = Callable[[], Device]
Rounded: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]


def yardstick(name: str, case: Case) -> Yardstick:
    """Plain arithmetic in the precision that a device promises."""
    if name == "gpu":
        return HalfPrecision
    types = getattr(case, "format", ""), getattr(case, "values", "")
    if name == "cpu" and ("turbo4" in types or any(map(multiplies_bytes, types))):
        return WholeNumbers
    rounds = name != "reference" and case.lossy_weights
    return RoundedActivations if rounds else ReferenceDevice


class RoundedActivations(ReferenceDevice):
    """float32, with the activations of `linear` and `moe` rounded to 8 bits per 32."""

    def bind(self, op: str, /, **static: Any) -> Callable[..., Any]:
        if op == "moe":
            return moe.bind(self, **static, rounded=lambda a, weight: round_to_8_bits(a))
        if op != "linear":
            return super().bind(op, **static)
        weight, prologue, bias = static["weight"], static["prologue"], static["bias"]

        def rounded(x: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
            return linear.product(
                round_to_8_bits(linear.activations(x, prologue)), weight, bias, residual
            )

        return rounded


class WholeNumbers(ReferenceDevice):
    """float32, but what is multiplied with a turbo4 head of 64 numbers is rounded, queries of each
    head and weights of each 128 keys, so that the sizes of all add up to 2^17 at most and none is
    over 2^15; the largest sum of two levels is 2^14. What is multiplied with bytes of q8_0 is
    rounded so that of queries none is over 127 * 2^8, of weights none over 2^16."""

    def bind(self, op: str, /, **static: Any) -> Callable[..., Any]:
        if op != "attend":
            return super().bind(op, **static)
        formats = (static["kv"].format_k, static["kv"].format_v)
        sides = [each.type.name == "turbo4" and each.head_dim == 64 for each in formats]
        of_bytes = [multiplies_bytes(each.type.name) for each in formats]
        look = partial(look_in_whole_numbers, of_bytes, *sides)
        return attend.bind(self, **static, look=look)


def multiplies_bytes(type: str) -> bool:
    """Whether this machine multiplies heads of the type as the bytes they are."""
    return type == "q8_0" and isa.choose() == "avx512_vnni"


def look_in_whole_numbers(
    of_bytes: Sequence[bool],
    keys: bool,
    values: bool,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    scale: float,
    sinks: NDArray[Any] | None,
) -> NDArray[Any]:
    """As `attend.look`. Half a head's numbers repeat the others."""
    if of_bytes[0]:
        unit = np.abs(q).max(-1, keepdims=True) / (127 * 2**8)
        q = np.rint(q / np.where(unit == 0, 1, unit)) * unit
    if keys:
        q, k = in_whole_numbers(q, 64), in_levels(k)
    weights, total = attend.softmax(q @ k.swapaxes(1, 2) * q.dtype.type(scale), sinks)
    if values:
        sized = by_chunks(weights, np.linalg.norm(v, axis=-1), in_whole_numbers)
        weights, v = sized, in_levels(v)
    if of_bytes[1]:
        blocks = np.split(v, v.shape[-1] // 32, axis=-1)
        largest = [np.abs(block).max(-1) for block in blocks]
        sums = [
            by_chunks(weights, *each, in_two_digits) @ b
            for *each, b in zip(largest, blocks, strict=True)
        ]
        return np.concatenate(sums, axis=-1) / total
    return weights @ v / total


def by_chunks(weights: NDArray[Any], size: NDArray[Any], rounded: Rounded) -> NDArray[Any]:
    """Weights [.., keys], rounded when they were multiplied by values' sizes [.., keys]."""
    size = size[:, None]
    parts = np.split(weights * size, range(128, size.shape[-1], 128), axis=-1)
    return np.concatenate([*map(rounded, parts)], -1) / np.where(size == 0, 1, size)


def in_two_digits(x: NDArray[Any]) -> NDArray[Any]:
    unit = x.max(-1, keepdims=True) / (2**16 - 1)
    return np.rint(x / np.where(unit == 0, 1, unit)) * unit


def in_whole_numbers(x: NDArray[Any], counted: int | None = None) -> NDArray[Any]:
    size = np.abs(x)[..., :counted]
    unit = np.maximum(size.max(-1) / 2**15, size.sum(-1) / 2**17)[..., None]
    return np.rint(x / np.where(unit == 0, 1, unit)) * unit


def in_levels(x: NDArray[Any]) -> NDArray[Any]:
    """Rows to multiples of what two levels of a block of their length are, over 2^14."""
    unit = np.linalg.norm(x, axis=-1, keepdims=True) * 2 * 0.2415 / 2**14
    return np.rint(x / np.where(unit == 0, 1, unit)) * unit


class HalfPrecision(ReferenceDevice):
    """float32, but what a tensor core multiplies is rounded to float16: weights and activations of
    `linear` and `moe`, unless all weights are float32; queries and keys, weights and values of
    `attend`, unless keys or values are stored as float32."""

    def __init__(self) -> None:
        super().__init__()
        self.rounded: list[ReferenceWeight] = []

    def pack(self, parts: Sequence[Part], cols: int, searched: bool = False) -> ReferenceWeight:
        packed = super().pack(parts, cols, searched)
        row = 0
        for part in parts:
            if part.format.dense != "f32":
                rows = packed.values[row : row + part.rows]
                rows[:] = in_half(rows)
                self.rounded.append(packed)
            row += part.rows
        return packed

    def bind(self, op: str, /, **static: Any) -> Callable[..., Any]:
        if op == "attend":
            sides = (static["kv"].format_k, static["kv"].format_v)
            rounded = [side.type.name != "f32" for side in sides]
            return attend.bind(self, **static, look=partial(look_in_half, *rounded))
        if op == "moe":
            return moe.bind(self, **static, rounded=self._rounded)
        bound = super().bind(op, **static)
        if op != "linear" or not any(static["weight"] is weight for weight in self.rounded):
            return bound
        weight, prologue, bias = static["weight"], static["prologue"], static["bias"]

        def rounded(x: NDArray[Any], residual: NDArray[Any] | None = None) -> NDArray[Any]:
            return linear.product(in_half(linear.activations(x, prologue)), weight, bias, residual)

        return rounded

    def _rounded(self, a: NDArray[Any], weight: ReferenceWeight) -> NDArray[Any]:
        return in_half(a) if any(weight is each for each in self.rounded) else a


def look_in_half(
    keys: bool,
    values: bool,
    q: NDArray[Any],
    k: NDArray[Any],
    v: NDArray[Any],
    scale: float,
    sinks: NDArray[Any] | None,
) -> NDArray[Any]:
    """As `attend.look`, rounded where it multiplies with keys and with values."""
    if keys:
        q, k = in_half(q), in_half(k)
    weights, total = attend.softmax(q @ k.swapaxes(1, 2) * q.dtype.type(scale), sinks)
    if values:
        weights, v = in_half(weights), in_half(v)
    return weights @ v / total


def in_half(x: NDArray[Any]) -> NDArray[Any]:
    return x.astype(np.float16).astype(x.dtype)


def round_to_8_bits(x: NDArray[Any]) -> NDArray[Any]:
    if x.shape[1] % 32:  # no quantised matrix has such rows
        return x
    blocks = x.reshape(len(x), -1, 32)
    unit = np.abs(blocks).max(axis=-1, keepdims=True) / 127
    return (np.rint(blocks / np.where(unit == 0, 1, unit)) * unit).reshape(x.shape)


def run(case: Case, device: Device, rows: int) -> Values:
    return case.bind(device)(case.inputs(rows))
