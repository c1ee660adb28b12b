"""Frequencies of rotary positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from turbodflash_engine.layers.rope import RopeConfig, RopeOverrides
from turbodflash_engine.metadata import Metadata

PLAIN = [10_000.0 ** (-2 * i / 64) for i in range(32)]


def config(overrides: RopeOverrides | None = None, **keys: Any) -> RopeConfig:
    named = {f"rope.{key.replace('__', '.')}": value for key, value in keys.items()}
    return RopeConfig.read(
        Metadata({"context_length": 2048, **named}), overrides or RopeOverrides()
    )


def assert_frequencies(found: RopeConfig, expected: list[float]) -> None:
    np.testing.assert_allclose(found.rope("norm", 64).inv_freq, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("keys", "overrides", "scale"),
    [
        ({}, {}, 1.0),
        ({"scaling__factor": 4.0}, {}, 0.25),
        ({"scale_linear": 8.0}, {}, 0.125),
        ({"scaling__factor": 4.0, "scale_linear": 8.0}, {}, 0.25),
        ({"scaling__factor": 0.0}, {}, 1.0),
        ({"scaling__type": "none", "scaling__factor": 4.0}, {}, 1.0),
        ({"scaling__factor": 4.0}, {"scaling": "none"}, 1.0),
        ({"scaling__factor": 4.0}, {"factor": 2.0}, 0.5),
        ({}, {"freq_scale": 0.3, "factor": 2.0}, 0.3),
        ({"scaling__type": "none"}, {"scaling": "linear", "factor": 2.0}, 0.5),
    ],
    ids=str,
)
def test_linear_scaling(keys: dict[str, Any], overrides: dict[str, Any], scale: float) -> None:
    assert_frequencies(config(RopeOverrides(**overrides), **keys), [scale * f for f in PLAIN])


def test_divisors_divide() -> None:
    divisors = np.linspace(1, 8, 32, dtype=np.float32)
    rope = config().rope("norm", 64, divisors)
    np.testing.assert_allclose(rope.inv_freq, np.array(PLAIN) / divisors, rtol=1e-6)


def yarn(factor: float, original: int) -> list[float]:
    """Pair by pair, as the definition says it."""

    def pair_of(rotations: float) -> float:
        return 64 * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(10_000))

    low, high = max(0, math.floor(pair_of(32))), min(63, math.ceil(pair_of(1)))
    frequencies = []
    for i, frequency in enumerate(PLAIN):
        scaled = min(max((i - low) / max(0.001, high - low), 0), 1)
        frequencies.append(frequency / factor * scaled + frequency * (1 - scaled))
    return frequencies


@pytest.mark.parametrize(("factor", "original"), [(4.0, 2048), (16.0, 512), (2.5, 8192)])
def test_yarn(factor: float, original: int) -> None:
    found = config(
        scaling__type="yarn",
        scaling__factor=factor,
        scaling__original_context_length=original,
        scaling__attn_factor=0.9,
    )
    assert_frequencies(found, yarn(factor, original))
    magnitude = 0.9 * (1 + 0.1 * math.log(factor))
    assert found.rope("norm", 64).magnitude == pytest.approx(magnitude)


def test_yarn_takes_the_trained_length_unless_told() -> None:
    scaled = {"scaling__type": "yarn", "scaling__factor": 4.0}
    assert_frequencies(config(**scaled), yarn(4.0, 2048))
    told = config(RopeOverrides(original_context=4096), **scaled)
    assert_frequencies(told, yarn(4.0, 4096))


@pytest.mark.parametrize("kind", ["none", "linear", "longrope"])
def test_the_attention_factor_counts_in_every_scaling(kind: str) -> None:
    found = config(scaling__type=kind, scaling__attn_factor=1.19)
    assert found.rope("norm", 64).magnitude == pytest.approx(1.19)
