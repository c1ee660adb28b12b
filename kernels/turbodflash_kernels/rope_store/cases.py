"""The sweep of the op: both pairings, partial rotation, norms, head groups, cache types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from turbodflash_kernels.cases import Values, normal
from turbodflash_kernels.device import Device
from turbodflash_kernels.kv import kv_types
from turbodflash_kernels.op import Array, RmsNorm, Rope


@dataclass(frozen=True)
class Case:
    """start: position of the first row. shift: how far behind its position a row is stored.

    format, values: types of keys and of values, the same if only one is given.
    sliced: the rows are columns of a wider array. ring: slots; 0 = one for each position.
    """

    rows: int
    start: int
    heads: int
    kv_heads: int
    head_dim: int
    rope: Literal["norm", "neox"] = "norm"
    n_rot: int = 0
    format: str = "f16"
    values: str = ""
    rotate: bool = False
    magnitude: float = 1.0
    normed: str = ""
    shift: int = 0
    sliced: bool = False
    ring: int = 0
    lossy_weights: bool = False

    def __str__(self) -> str:
        rope = f"{self.rope}{self.n_rot or self.head_dim}"
        shape = f"{self.heads}h{self.kv_heads}x{self.head_dim}"
        extras = ["normed-" * bool(self.normed) + self.normed, "sliced" * self.sliced]
        extras += [f"shifted{self.shift}" * bool(self.shift), "rotated" * self.rotate]
        extras += [f"ring{self.ring}" * bool(self.ring)]
        types = "/".join(filter(None, [self.format, self.values]))
        return "-".join([f"{self.rows}@{self.start}", shape, rope, types, *filter(None, extras)])

    def inputs(self, rows: int) -> Values:
        width = (self.heads + 2 * self.kv_heads) * self.head_dim
        positions = np.arange(self.start, self.start + rows, dtype=np.int32)
        values = {"qkv": normal(rows, width, 6), "positions": positions}
        if self.shift:
            values["slots"] = positions + np.int32(self.shift)
        return values

    def bind(self, device: Device) -> Callable[[Values], Values]:
        shape = (max(self.kv_heads, 1), self.head_dim, self.head_dim)
        types = (self.format, self.values or self.format)
        slots, ring = self.ring or self.start + self.shift + 128, bool(self.ring)
        kv = device.kv(*types, slots, *shape, rotate=self.rotate, ring=ring)
        norms = {f"{name}_norm": self._norm(device, seed) for seed, name in enumerate("qkv")}
        rope_store = device.bind(
            "rope_store",
            kv=kv,
            heads=self.heads,
            kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            rope=self._rope(),
            **norms,
        )

        def run(values: Values) -> Values:
            rest = [device.upload(values[key]) for key in values if key != "qkv"]
            q = device.read(rope_store(self._qkv(device, values["qkv"]), *rest))
            if not self.kv_heads:
                return {"q": q}
            slots = values.get("slots", values["positions"])
            k, v = kv.read(int(slots[0]), int(slots[-1]) + 1)
            return {"q": q, "k": k, "v": v} if self.heads else {"k": k, "v": v}

        return run

    def _qkv(self, device: Device, values: NDArray[np.float32]) -> Array:
        if not self.sliced:
            return device.upload(values)
        wide = np.hstack([np.full((len(values), 48), np.nan, np.float32), values, values])
        return device.upload(wide)[:, 48 : 48 + values.shape[1]]

    def _norm(self, device: Device, seed: int) -> RmsNorm | None:
        if "qkv"[seed] not in self.normed:
            return None
        return RmsNorm(device.upload(normal(1, self.head_dim, seed)[0]), 1e-6)

    def _rope(self) -> Rope:
        n_rot = self.n_rot or self.head_dim
        inv_freq = (10_000.0 ** -(np.arange(0, n_rot, 2) / n_rot)).astype(np.float32)
        return Rope(self.rope, n_rot, inv_freq, self.magnitude)


KINDS: tuple[Literal["norm", "neox"], ...] = ("norm", "neox")

CASES = [
    *(Case(rows, 0, 4, 4, 32, rope) for rows in (1, 2, 3, 8, 17, 40) for rope in KINDS),
    *(Case(3, 300, 3 * kv, kv, dim, "norm") for kv in (1, 3) for dim in (32, 64, 80, 96, 128)),
    *(Case(3, 300, 8, 2, dim, "neox", format="f32") for dim in (64, 80, 96, 128)),
    *(Case(5, 63, 6, 2, 96, rope, n_rot) for rope in KINDS for n_rot in (16, 32, 72)),
    Case(5, 700, 4, 1, 64, "norm", magnitude=1.2),
    Case(1, 15, 9, 3, 64),
    Case(5, 40, 6, 2, 16, format="f32"),
    *(Case(rows, 130, 6, 2, 64, "neox", normed="qk") for rows in (1, 5, 17)),
    *(Case(5, 60, 4, 2, dim, "neox", normed="qk", format="f32") for dim in (40, 80, 128)),
    *(Case(3, 60, 6, 2, 64, rope, 32, normed="qk") for rope in KINDS),
    *(Case(3, 60, 6, 2, 64, normed=which) for which in "qkv"),
    *(Case(rows, 60, 4, 2, 80, "neox", normed="qkv", format="f32") for rows in (1, 17)),
    *(Case(rows, 120, 0, 2, 64, "neox", normed="k", sliced=True) for rows in (1, 8, 40)),
    *(Case(rows, 120, 0, 3, 32, format="f32") for rows in (1, 8)),
    *(Case(rows, 120, 4, 0, 64, "neox", normed="q") for rows in (1, 17)),
    *(Case(rows, 200, 6, 2, 64, sliced=True, shift=9) for rows in (1, 3, 17)),
    *(Case(rows, 1000, 6, 2, 64, ring=128) for rows in (1, 8, 60)),
    Case(17, 245, 4, 2, 64, "neox", format="q8_0", values="turbo4", normed="qk", shift=5, ring=256),
]

HEAD_DIMS = (64, 80, 96, 128, 192, 256, 512, 576)
TYPES = kv_types()

TYPE_CASES = [
    *(
        Case(3, 60, 4, 2, HEAD_DIMS[at % 8], "neox", format=k, values=TYPES[(at + 5) % len(TYPES)])
        for at, k in enumerate(TYPES)
    ),
    *(Case(17, 60, 6, 2, 64, format=type) for type in TYPES if type not in ("f16", "f32")),
    *(Case(3, 60, 4, 2, dim, format="q4_0", rotate=True) for dim in (64, 128, 192, 576)),
    Case(5, 200, 6, 2, 64, "neox", 32, "turbo4", "q8_0", True, 1.2, "qk", 9, True),
    Case(5, 200, 4, 2, 64, format="q8_0", values="q4_0", rotate=True, normed="v"),
]

QUICK = [*CASES, *TYPE_CASES]
"""What a device sweeps that is interpreted."""

AHEAD = [
    *(Case(rows, 0, 32, 8, 128, "neox", normed="qk") for rows in (1, 64)),
    *(Case(rows, 0, 32, 4, 512, "neox", normed="qkv") for rows in (1, 64)),
    Case(1, 0, 32, 8, 128, "neox", format="q8_0", values="turbo4"),
    Case(1, 0, 9, 3, 64, "norm", format="q5_1", values="iq4_nl", rotate=True),
    Case(1, 0, 16, 2, 256, "neox", 64, format="q4_0", values="turbo3"),
    Case(1, 0, 32, 8, 64, "norm", format="turbo4", values="turbo3"),
]
"""What is compiled for cards that are not there: shapes of real models."""
