"""The sweep of the op: contexts around tile edges, groups, sizes, windows, blocks, trees, types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import KV, Device
from turbodflash_kernels.kv import HeadFormat, head_formats, kv_types

MOST_ROWS = 128


@dataclass(frozen=True)
class Case:
    """context: keys that the first row sees.

    format, values: types of keys and of values, the same if only one is given.
    ring: slots of the cache; 0 = one for each position.
    block, tree: rows that the op is called with. They depend on each other: a row of the case is a
    whole block or tree, at the next position.
    """

    rows: int
    context: int
    heads: int
    kv_heads: int
    head_dim: int
    format: str = "f16"
    values: str = ""
    rotate: bool = False
    window: int = 0
    sinks: bool = False
    block: int = 0
    tree: int = 0
    ring: int = 0
    lossy_weights: bool = False

    def __str__(self) -> str:
        shape = f"{self.heads}h{self.kv_heads}x{self.head_dim}"
        numbers = {
            "window": self.window,
            "ring": self.ring,
            "block": self.block,
            "tree": self.tree,
        }
        extras = [f"{name}{number}" for name, number in numbers.items() if number]
        extras += ["sinks"] * self.sinks + ["rotated"] * self.rotate
        types = "/".join(filter(None, [self.format, self.values]))
        return "-".join([f"{self.rows}@{self.context}", shape, types, *extras])

    def inputs(self, rows: int) -> Values:
        together = self.block or self.tree or 1
        # some heads nearly even, some nearly one-hot
        sharpness = np.repeat(np.linspace(0.2, 4, self.heads, dtype="f4"), self.head_dim)
        starts = np.arange(self.context - 1, self.context - 1 + rows, dtype=np.int32)
        q = normal(rows, together * len(sharpness), 7) * np.tile(sharpness, together)
        turned = self._formats[0].turned(q.reshape(rows, -1, self.head_dim))
        values = {"q": turned.reshape(rows, -1)}
        if self.tree:
            values["parents"] = np.array([random_tree(self.tree, seed) for seed in range(rows)])
            ahead = np.array([depths(parents) for parents in values["parents"]])
        else:
            ahead = np.arange(together, dtype=np.int32)
        values["positions"] = starts[:, None] + ahead
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        kv = self._filled(device, self.context + MOST_ROWS + self.block + self.tree)
        sinks = np.linspace(-3, 3, self.heads, dtype=np.float32)
        attend = device.bind(
            "attend",
            kv=kv,
            **self._shape(),
            scale=self.head_dim**-0.5,
            causal=not self.block,
            window=self.window,
            sinks=device.upload(sinks) if self.sinks else None,
        )

        def call(values: Values) -> NDArray[np.float32]:
            q = values["q"].reshape(values["positions"].size, -1)
            rest = [device.upload(values[key]) for key in ("positions", "parents") if key in values]
            return device.read(attend(device.upload(q), *rest))

        def run(values: Values) -> Values:
            if not self.block and not self.tree:
                return {"y": call({**values, "positions": values["positions"][:, 0]})}
            calls = range(len(values["q"]))
            one = [call({key: value[i] for key, value in values.items()}) for i in calls]
            return {"y": np.array([y.reshape(-1) for y in one])}

        return run

    def _filled(self, device: Device, positions: int) -> KV:
        """A cache of the very bytes that every device and precision is given."""
        shape = (self.kv_heads, self.head_dim, self.head_dim)
        slots, ring = self.ring or positions, bool(self.ring)
        kv = device.kv(*self._types, slots, *shape, rotate=self.rotate, ring=ring)
        both = normal(positions, 2 * self.kv_heads * self.head_dim, 8).astype(np.float16)
        heads = both.reshape(positions, 2, self.kv_heads, self.head_dim)
        k, v = (format.encode(heads[:, side]) for side, format in enumerate(self._formats))
        first = max(positions - slots, 0)
        kv.put_rows(first, k[first:], v[first:])
        return kv

    @property
    def _types(self) -> tuple[str, str]:
        return self.format, self.values or self.format

    @property
    def _formats(self) -> tuple[HeadFormat, HeadFormat]:
        return head_formats(*self._types, self.head_dim, self.head_dim, self.rotate)

    def _shape(self) -> dict[str, Any]:
        return {"heads": self.heads, "kv_heads": self.kv_heads, "head_dim": self.head_dim}


def random_tree(rows: int, seed: int) -> NDArray[np.int32]:
    """Parents of a tree's rows: some deep, some wide."""
    random = np.random.default_rng([seed, rows])
    nearby = random.integers(1, 5)
    return np.array(
        [-1, *(random.integers(max(row - nearby, 0), row) for row in range(1, rows))], np.int32
    )


def depths(parents: NDArray[np.int32]) -> NDArray[np.int32]:
    """How far from the root each row of a tree is."""
    found = np.zeros(len(parents), np.int32)
    for row in range(1, len(parents)):
        found[row] = found[parents[row]] + 1
    return found


RINGS = [
    *(Case(rows, 900, 6, 2, 64, window=100, ring=256) for rows in (1, 8, 40)),
    *(Case(2, context, 4, 1, 128, "q8_0", window=130, ring=384) for context in (20, 383, 2000)),
    *(Case(2, context, 4, 2, 64, window=90, ring=256, tree=17) for context in (250, 380, 1000)),
    *(Case(2, 500, 6, 2, 64, window=70, ring=256, sinks=True, block=size) for size in (2, 16)),
]

CONTEXTS = (1, 15, 16, 17, 63, 64, 65, 300, 700)

CASES = [
    *(Case(1, context, 9, 3, 64) for context in CONTEXTS),
    *(Case(5, context, 4, 1, 64, "f32") for context in CONTEXTS),
    *(Case(rows, 65, 4, 4, 32) for rows in (1, 2, 3, 5, 8, 16, 17, 40)),
    *(Case(rows, 17, 6, 2, 96) for rows in (1, 3, 8, 40)),
    *(Case(rows, context, 9, 3, 64) for rows in (5, 8) for context in (100, 125, 250)),
    *(Case(rows, 140, 16, 1, 32) for rows in (1, 3)),
    *(Case(3, 64, 3 * kv, kv, dim) for kv in (1, 2) for dim in (16, 32, 64, 80, 96, 128)),
    *(Case(17, 300, heads, 2, 128, format) for heads in (2, 8) for format in ("f16", "f32")),
    *(Case(rows, 250, 6, 2, 64, window=size) for rows in (1, 17) for size in (1, 20, 128, 600)),
    *(Case(rows, 120, 4, 2, 64, "f32", window=130, sinks=True) for rows in (1, 8, 40)),
    *(Case(rows, 300, 6, 2, 64, sinks=True) for rows in (1, 5, 17)),
    *(Case(3, context, 6, 2, 64, block=size) for context in (1, 125) for size in (2, 8, 16)),
    *(Case(2, 250, 4, 1, 64, "f32", block=size, sinks=True) for size in (5, 40)),
    *(Case(2, 250, 6, 2, 64, window=size, block=16) for size in (4, 100)),
    *(Case(3, context, 9, 3, 64, tree=17) for context in (1, 118, 300)),
    *(Case(3, 250, 4, 2, 80, "f32", tree=size) for size in (1, 2, 32)),
    *(Case(3, 125, 4, 1, 128, window=size, sinks=True, tree=20) for size in (3, 40, 160)),
    *RINGS,
]

HEAD_DIMS = (64, 80, 96, 128, 192, 256, 512, 576)
TYPES = kv_types()
ROTATED = ("q8_0", "q5_1", "iq4_nl", "turbo4")

TYPE_CASES = [
    # every type as keys and as values, beside another one, every size of a head
    *(
        Case(3, 130, 2 * (1 + at % 2), 2, HEAD_DIMS[at % 8], k, TYPES[(at + 5) % len(TYPES)])
        for at, k in enumerate(TYPES)
    ),
    *(Case(5, 40, 6, 2, 64, type) for type in TYPES if type not in ("f16", "f32")),
    *(Case(rows, 300, 6, 2, 64, type, "q4_0", rotate=True) for rows in (1, 17) for type in ROTATED),
    *(Case(3, 140, 4, 2, dim, "q8_0", rotate=True) for dim in (128, 192, 256, 512, 576)),
    Case(3, 250, 6, 2, 64, "q8_0", "turbo4", window=100, sinks=True),
    Case(2, 125, 6, 2, 64, "turbo3", "q5_1", block=16),
    Case(2, 125, 6, 2, 96, "q4_1", "turbo2", tree=20),
    Case(2, 125, 6, 2, 64, "turbo4", tree=20),
]


def is_quick(case: Case) -> bool:
    """Whether it takes a device that is interpreted less than a second or two."""
    return case.rows * (case.block or case.tree or 1) * case.context * case.head_dim <= 410_000


def alone(case: Case) -> Case:
    """One block or tree, where the case has several of them."""
    return replace(case, rows=1) if case.block or case.tree else case


QUICK = [
    *(alone(case) for case in [*CASES, *TYPE_CASES] if is_quick(case) and not case.ring),
    *(Case(rows, 300, 2, 1, 32, window=60, ring=128) for rows in (2, 34)),
    Case(1, 250, 2, 1, 32, "q8_0", window=40, ring=128, tree=5),
    Case(1, 250, 2, 1, 32, window=40, ring=128, sinks=True, block=8),
]

AHEAD = [
    *(Case(rows, 64, 32, 8, 128) for rows in (1, 64)),
    *(Case(rows, 64, 32, 8, 128, type) for rows, type in ((1, "q4_0"), (16, "turbo4"))),
    Case(20, 64, 9, 3, 64, "q8_0", window=128, sinks=True),
    *(Case(rows, 64, 4, 1, 256, window=512, ring=1024) for rows in (1, 64)),
    Case(4, 64, 32, 16, 256, "q8_0", window=1024, ring=2048, tree=4),
    Case(4, 64, 32, 4, 512),
    Case(4, 64, 16, 2, 256, "q8_0", "q4_0"),
    Case(1, 64, 32, 8, 128, "q8_0", "turbo4", tree=8),
    Case(1, 64, 8, 8, 64, "f32", block=16),
]
"""What is compiled for cards that are not there: shapes of real models."""
