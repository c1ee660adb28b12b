"""Rotary positions: from what a file says about them to frequencies."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.tensors import Layout, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_kernels.op import Rope

Scaling = Literal["none", "linear", "yarn", "longrope"]

DIVISORS = "rope_freqs.weight"
LONG, SHORT = "rope_factors_long.weight", "rope_factors_short.weight"

SCALINGS = ("none", "linear", "yarn", "longrope")
BETA_FAST, BETA_SLOW = 32.0, 1.0
"""YaRN: rotations within the original context from which a pair is left alone, or scaled fully."""


class RopeOverrides(NamedTuple):
    """What a person asked for instead of what the file says; None = as the file says.

    factor: how many times longer the context is than the one trained on; freq_scale = 1 / factor.
    """

    scaling: str | None = None
    factor: float | None = None
    freq_base: float | None = None
    freq_scale: float | None = None
    original_context: int | None = None


class RopeConfig(NamedTuple):
    """freq_scale: multiplies angles. magnitude: multiplies cosine and sine in every scaling."""

    freq_base: float
    scaling: Scaling
    freq_scale: float
    original_context: int
    magnitude: float

    @classmethod
    def read(cls, meta: Metadata, overrides: RopeOverrides) -> RopeConfig:
        scaling = overrides.scaling or meta.get("rope.scaling.type", "linear")
        if scaling not in SCALINGS:
            raise BadModel(
                f"rope scaling {scaling!r} is not supported",
                hint=f"supported are: {', '.join(SCALINGS)}",
            )
        base = overrides.freq_base or meta.get("rope.freq_base", 10_000.0)
        return cls(
            freq_base=_sane("rope.freq_base", base, above=1.0),
            scaling=cast(Scaling, scaling),
            freq_scale=1.0 if scaling == "none" else _freq_scale(meta, overrides),
            original_context=overrides.original_context
            or meta.get("rope.scaling.original_context_length", 0)
            or meta.need("context_length", int),
            magnitude=_sane("rope.scaling.attn_factor", meta.get("rope.scaling.attn_factor", 1.0)),
        )

    def unscaled(self, meta: Metadata, key: str, base: float) -> RopeConfig:
        """Of layers with another base, which the key says or `base`; contexts are not stretched."""
        base = _sane(key, meta.get(key, base), above=1.0)
        return self._replace(freq_base=base, scaling="none", freq_scale=1.0)

    def rope(
        self,
        kind: Literal["norm", "neox"],
        n_rot: int,
        divisors: NDArray[np.float32] | None = None,
    ) -> Rope:
        """divisors: f32[n_rot / 2], frequencies are divided by them."""
        frequency = self.freq_base ** -(np.arange(0, n_rot, 2) / n_rot)
        if divisors is not None:
            frequency = frequency / divisors
        magnitude = self.magnitude
        scaled = self.freq_scale * frequency
        if self.scaling == "yarn":
            alone = self._share_left_alone(n_rot)
            scaled = scaled * (1 - alone) + frequency * alone
            magnitude *= 1 - 0.1 * math.log(self.freq_scale)
        return Rope(kind, n_rot, scaled.astype(np.float32), magnitude)

    def divisors_layout(self, n_rot: int) -> Layout:
        """The tensors of divisors that a file may bring."""
        names = (DIVISORS, LONG, SHORT) if self.scaling == "longrope" else (DIVISORS,)
        return Layout(optional=dict.fromkeys(names, (n_rot // 2,)))

    def divisors(self, tensors: Tensors, positions: int) -> NDArray[np.float32] | None:
        """The file's divisors f32[n_rot / 2] for a cache of so many positions.

        longrope has two sets, for contexts up to the original one and for longer ones.
        """
        name = DIVISORS
        if self.scaling == "longrope" and LONG in tensors and SHORT in tensors:
            name = LONG if positions > self.original_context else SHORT
        return tensors.vector(name) if name in tensors else None

    def _share_left_alone(self, n_rot: int) -> NDArray[np.float64]:
        """YaRN's ramp [n_rot / 2]: 1 for fast pairs, 0 for slow ones."""
        low = max(0, math.floor(self._pair_of(BETA_FAST, n_rot)))
        high = min(n_rot - 1, math.ceil(self._pair_of(BETA_SLOW, n_rot)))
        ramp = (np.arange(n_rot // 2) - low) / max(0.001, high - low)
        return 1 - np.clip(ramp, 0, 1)

    def _pair_of(self, rotations: float, n_rot: int) -> float:
        """The pair that turns so often within the original context, as a real number."""
        per_radian = self.original_context / (rotations * 2 * math.pi)
        return n_rot * math.log(per_radian) / (2 * math.log(self.freq_base))


def _freq_scale(meta: Metadata, overrides: RopeOverrides) -> float:
    if overrides.freq_scale is not None:
        return overrides.freq_scale
    factor = overrides.factor or meta.get("rope.scaling.factor", meta.get("rope.scale_linear", 0.0))
    return 1 / _sane("rope.scaling.factor", factor) if factor else 1.0


def _sane(key: str, value: float, above: float = 0.0) -> float:
    if not above < value < math.inf:
        raise BadModel(f"{key} is {value}, expected a finite number above {above:g}")
    return value
