"""The sweep of the op. Rows depend on each other: a row of a case is a whole trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.attend.cases import random_tree
from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import DeltaShape, RmsNorm


@dataclass(frozen=True)
class Case:
    """rows: how many trials, each of the same memory; trial: rows that the op is called with.

    settled, carried: pending rows that are taken in before, or only come before.
    taken: so many of the rows the memory takes in at once. tree: they are one.
    sliced: they are columns of a wider array.
    """

    rows: int
    trial: int
    key_heads: int
    value_heads: int
    head_dim: int
    taps: int = 4
    settled: int = 0
    carried: int = 0
    taken: int = 0
    tree: bool = False
    sliced: bool = False
    lossy_weights: bool = False

    def __str__(self) -> str:
        numbers = {"settled": self.settled, "carried": self.carried, "taken": self.taken}
        flags = {"tree": self.tree, "sliced": self.sliced}
        extras = [f"{name}{number}" for name, number in numbers.items() if number]
        extras += [name for name, flag in flags.items() if flag]
        heads = f"{self.key_heads}k{self.value_heads}x{self.head_dim}"
        return "-".join([f"{self.trial}@{heads}", f"{self.taps}taps", *extras])

    @property
    def shape(self) -> DeltaShape:
        return DeltaShape(self.key_heads, self.value_heads, self.head_dim, self.taps)

    def inputs(self, rows: int) -> Values:
        values: Values = {"x": normal(rows, self.trial * self.shape.width, 1)}
        if self.tree:
            values["parents"] = np.array([random_tree(self.trial, seed) for seed in range(rows)])
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        shape = self.shape
        counts = device.upload(np.zeros(4, np.int32))
        state = device.new_state(shape, counts, self.settled + self.carried + self.trial)
        waiting = normal(self.settled + self.carried, shape.pending, 2)
        window = normal(shape.taps - 1, shape.channels, 3)
        s = normal(shape.inner, shape.head_dim, 4) / np.float32(np.sqrt(shape.head_dim))
        delta_net = device.bind(
            "delta_net",
            state=state,
            taps=device.upload(normal(shape.taps, shape.channels, 5) / np.float32(shape.taps)),
            dt_bias=device.upload(normal(1, shape.value_heads, 6)[0]),
            decay=device.upload(-np.abs(normal(1, shape.value_heads, 7)[0])),
            norm=RmsNorm(device.upload(normal(1, shape.head_dim, 8)[0]), 1e-6),
            eps=1e-6,
        )
        rounds = iter(range(1, 1 << 20))

        def one(x: NDArray[np.float32], parents: NDArray[np.int32] | None) -> Values:
            state.put(window, s.reshape(-1, shape.head_dim, shape.head_dim))
            state.put_pending(waiting)
            numbers = [self.settled, self.carried, self.taken, next(rounds)]
            device.write(counts, np.array(numbers, np.int32))
            rows = x.reshape(self.trial, -1)
            if self.sliced:
                wide = np.pad(rows, ((0, 0), (16, 16)), constant_values=1e9)
                given = device.upload(wide)[:, 16 : 16 + shape.width]
            else:
                given = device.upload(rows)
            more = () if parents is None else (device.upload(parents),)
            y = device.read(delta_net(given, *more)).reshape(-1).copy()
            memory = [part.reshape(-1).copy() for part in state.read()]
            found = {"y": y, "window": memory[0], "s": memory[1]}
            waits = self.carried + self.trial - self.taken
            if waits:
                found["pending"] = state.pending(waits).reshape(-1)
            return found

        def run(values: Values) -> Values:
            parents = values.get("parents", [None] * len(values["x"]))
            found = [one(*each) for each in zip(values["x"], parents, strict=True)]
            return {name: np.stack([each[name] for each in found]) for name in found[0]}

        return run


QUICK = [
    *(Case(2, trial, 1, 2, 16) for trial in (1, 4)),
    Case(1, 18, 1, 1, 16, taken=17),
    Case(2, 2, 2, 4, 32, settled=3, taken=2),
    Case(2, 2, 1, 3, 48, settled=1, sliced=True),
    *(Case(2, 2, 1, 2, 16, taps, settled=2) for taps in (2, 5)),
    Case(2, 3, 1, 2, 16, carried=2),
    Case(2, 7, 1, 2, 16, carried=1, tree=True),
    Case(1, 9, 1, 1, 32, settled=4, tree=True, sliced=True),
]
"""What a device sweeps that is interpreted."""

CASES = [
    *QUICK,
    *(Case(2, trial, 2, 4, 32) for trial in (3, 16, 17)),
    *(Case(2, trial, 2, 4, 16, taken=trial) for trial in (1, 4, 17)),
    *(Case(2, 20, 2, 4, 16, taken=taken) for taken in (16, 19)),
    *(Case(2, 2, 1, 3, dim, settled=2) for dim in (48, 64, 128)),
    *(Case(2, 3, 2, 2, 16, taps, settled=3) for taps in (2, 3)),
    Case(2, 4, 2, 6, 64, settled=7, sliced=True),
    *(Case(2, 3, 3, 6, 16, carried=count) for count in (1, 5)),
    Case(2, 6, 2, 4, 32, settled=2, taken=1),
    *(Case(2, trial, 2, 4, 16, tree=True) for trial in (1, 17)),
    Case(2, 9, 2, 4, 32, carried=2, tree=True),
    Case(2, 9, 2, 4, 64, settled=4, tree=True, sliced=True),
]

AHEAD = [
    Case(1, 1, 16, 48, 128, settled=1),
    Case(1, 16, 16, 32, 128, settled=4),
    Case(1, 16, 16, 48, 128, tree=True),
    Case(1, 64, 16, 48, 128, taken=48),
]
"""What is compiled for cards that are not there: shapes of Qwen3.6."""
