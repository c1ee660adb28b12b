"""A model whose matrices are of a type says what it says with their numbers written out."""

from __future__ import annotations

import gguf as oracle
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.engine.tiny_models import Made, build, made, tensors_of
from turbodflash_engine import plugins
from turbodflash_engine.models._base import Model
from turbodflash_engine.quant import WeightType
from turbodflash_kernels.device import open_device

TOKENS = [5, 77, 300, 12, 12, 9]
QUANTISED = [name for name in plugins.names("quant") if name not in ("f32", "f16", "bf16")]
HALVES = {  # where a block keeps its float16 scales, and minima
    "q2_k": (80, 82), "q3_k": (108,), "q4_1": (0, 2), "q4_k": (0, 2), "q5_1": (0, 2),
    "q5_k": (0, 2), "q6_k": (208,), "tq1_0": (52,), "tq2_0": (64,),
}  # fmt: skip


def blocks(kind: WeightType, rows: int, cols: int) -> NDArray[np.uint8]:
    """Random rows of a type, the largest weight about 0.2: a model of them stays within floats."""
    random = np.random.default_rng(kind.type_id)
    raw = random.integers(0, 256, (rows * cols // kind.block, kind.block_bytes), dtype=np.uint8)
    set_scales(kind, raw, 1.0, random)
    set_scales(kind, raw, 0.2 / np.abs(as_defined(kind, raw)).max(), random)
    return raw.reshape(rows, -1)


def set_scales(
    kind: WeightType, raw: NDArray[np.uint8], scale: float, random: np.random.Generator
) -> None:
    half = np.float16(scale)
    if kind.name == "MXFP4":
        raw[:, 0] = random.integers(120, 123, len(raw))
    elif kind.name == "NVFP4":
        raw[:, :4] = random.integers(8, 32, (len(raw), 4))
    elif kind.name == "IQ1_M":  # in the top four bits of four words
        words = raw[:, 48:].view("<u2")
        parts = half.view(np.uint16) >> np.array([0, 4, 8, 12], np.uint16) & np.uint16(15)
        words[:] = words & np.uint16(0x0FFF) | parts << np.uint16(12)
    else:
        for at in HALVES.get(kind.name.lower(), (0,)):
            raw[:, at : at + 2] = half.reshape(1).view(np.uint8)


def as_defined(kind: WeightType, raw: NDArray[np.uint8]) -> NDArray[np.float32]:
    return oracle.quants.dequantize(raw, oracle.GGMLQuantizationType(kind.type_id))


def model_of(kind: WeightType, device: str, *, expanded: bool) -> Model:
    """The tiny llama with all matrices of a width of 256 replaced; expanded: in float32."""
    metadata, infos = tensors_of("llama-q-q4_1")
    for name, info in infos.items():
        cols = info.shape[0]
        if len(info.shape) == 2 and cols % 256 == 0:
            raw = blocks(kind, info.shape[1], cols)
            written_out = made(name, as_defined(kind, raw))
            infos[name] = written_out if expanded else Made(name, kind.name, info.shape, raw)
    return build(metadata, infos, open_device(device))


def logits(model: Model) -> NDArray[np.float32]:
    return model(TOKENS, len(TOKENS)).logits.copy()


@pytest.mark.parametrize("name", QUANTISED)
def test_its_logits_are_those_of_its_numbers_in_float32(name):
    kind = plugins.find("quant", name)
    exact = logits(model_of(kind, "reference", expanded=True))
    found = logits(model_of(kind, "reference", expanded=False))
    assert 1 < np.abs(exact).max() < 1e3
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-4)


def test_on_the_cpu_they_differ_by_what_8_bits_of_activations_lose():
    kind = plugins.find("quant", "iq1_s")
    exact = logits(model_of(kind, "reference", expanded=True))
    found = logits(model_of(kind, "cpu", expanded=False))
    error = np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2))
    assert error < 0.02
