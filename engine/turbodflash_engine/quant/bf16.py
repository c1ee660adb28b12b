"""BF16: the upper halves of float32 values."""

from turbodflash_engine.quant._base import Bytes, WeightType
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(dense="bf16")


def decode(raw: Bytes) -> Planar:
    return Planar(FORMAT, raw.view("<u2"))


PLUGIN = WeightType("BF16", 30, 1, 2, FORMAT, decode)
