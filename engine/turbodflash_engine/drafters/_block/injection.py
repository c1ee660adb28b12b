"""From rows of the model to keys and values of the draft, for all layers at once.

A row of the model may hold anything. One that is not finite is a token the draft knows nothing of;
it must not become the end of all drafts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from turbodflash_engine.drafters._block.config import BlockConfig
from turbodflash_engine.drafters._block.values import key_and_value, value_norm
from turbodflash_engine.layers.steps import Steps, Threads
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.models._base import Lasting
from turbodflash_kernels.device import KV, Device
from turbodflash_kernels.op import Array, RmsNorm, Rope

ROOM = 64  # rows; the buffer grows by so many

_Key = tuple[int, int, bool]  # first row, row after the last, whether sliding layers see them


class Injection:
    """A buffer of rows that wait, and the step that stores what the draft knows of them.

    Most of the model's taps hold only until something is run, so rows are copied when they come,
    all taps side by side. Those that last are copied when they are used: most never are.
    """

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        config: BlockConfig,
        rope: Rope,
        memory: Sequence[KV],
        threads: Threads,
    ) -> None:
        self._device, self._fused = device, config.fused
        fusion = device.pack([tensors.part(config.dialect.fusion)], config.fused)
        self._fuse = device.bind("linear", weight=fusion, prologue=None, bias=None)
        weight = device.upload(tensors.vector(config.dialect.fusion_norm))
        norm = RmsNorm(weight, config.eps)
        full, sliding = (
            {at: memory[at] for at, window in enumerate(config.windows) if bool(window) is slides}
            for slides in (False, True)
        )
        self._all = [
            _Layers(device, tensors, config, rope, norm, chosen)
            for chosen in (full, sliding)
            if chosen
        ]
        self._full = self._all[:1] if full else []
        self._threads = threads
        self._elsewhere: dict[int, Lasting] = {}  # by row: taps that are not copied yet
        self._make_room(ROOM)

    @property
    def nbytes(self) -> int:
        """Of the buffer, and of projections that the layers have packed for themselves, too."""
        rows, columns = self._rows.shape
        return 4 * rows * columns + sum(layers.nbytes for layers in self._all)

    @property
    def all_slide(self) -> bool:
        """Whether no layer looks back to the beginning."""
        return not self._full

    def hold(self, at: int, taps: Sequence[Array], count: int) -> None:
        """The first `count` rows of the taps wait as rows `at` and on; those before it stay."""
        for row in range(at, at + count):
            self._elsewhere.pop(row, None)
        if isinstance(taps, Lasting):
            self._elsewhere[at] = taps
        else:
            self._copy(at, taps, count)

    def _copy(self, at: int, taps: Sequence[Array], count: int) -> None:
        if at + count > self._rows.shape[0]:
            before, there = self._rows, min(at, self._rows.shape[0])
            self._make_room(at + count)
            if there:
                self._device.copy(self._rows[:there], before[:there])
        if count < len(taps[0]):
            taps = [tap[:count] for tap in taps]
        self._device.copy(self._rows[at : at + count], *taps)

    def run(self, start: int, stop: int, position: int, *, sliding: bool) -> None:
        """Store rows start..stop-1, which stand at `position` and on, in the full layers.

        sliding: and in those that look back only so far.
        """
        for row, taps in self._elsewhere.items():
            self._copy(row, taps, 1)
        self._elsewhere.clear()
        positions = np.arange(position, position + stop - start, dtype=np.int32)
        self._steps((start, stop, sliding), positions)

    def _step(self, key: _Key, positions: Array) -> None:
        start, stop, sliding = key
        fused = self._fuse(self._rows[start:stop])
        for layers in self._all if sliding else self._full:
            layers(fused, positions)

    def _make_room(self, rows: int) -> None:
        """An empty buffer of so many rows at least; steps that name another are forgotten."""
        self._rows = self._device.empty((-(-rows // ROOM) * ROOM, self._fused), np.float32)
        self._steps: Steps[_Key, None] = Steps(self._device, self._step, self._threads)


class _Layers:
    """The key and value projections of some layers as one matrix."""

    def __init__(
        self,
        device: Device,
        tensors: Tensors,
        config: BlockConfig,
        rope: Rope,
        norm: RmsNorm,
        memory: dict[int, KV],
    ) -> None:
        parts = [part for layer in memory for part in key_and_value(tensors, layer)]
        weight = device.pack(parts, config.width)
        self.nbytes = weight.nbytes
        self._project = device.bind("linear", weight=weight, prologue=norm, bias=None)
        self._columns = 2 * config.kv_width
        self._store = []
        for layer, kv in memory.items():
            head_norm = device.upload(tensors.vector(f"blk.{layer}.attn_k_norm.weight"))
            store = device.bind(
                "rope_store",
                kv=kv,
                heads=0,
                kv_heads=config.kv_heads,
                head_dim=config.head_dim,
                rope=rope,
                k_norm=RmsNorm(head_norm, config.eps),
                v_norm=value_norm(device, tensors, layer, config),
                finite=True,
            )
            self._store.append(store)

    def __call__(self, fused: Array, positions: Array) -> None:
        """fused f32[n, width], not normed yet."""
        rows = self._project(fused)
        for index, store in enumerate(self._store):
            first = index * self._columns
            store(rows[:, first : first + self._columns], positions)
