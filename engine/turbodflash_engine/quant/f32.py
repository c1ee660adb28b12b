"""F32: values as they are."""

from turbodflash_engine.quant._base import Bytes, WeightType
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(dense="f32")


def decode(raw: Bytes) -> Planar:
    return Planar(FORMAT, raw.view("<f4"))


PLUGIN = WeightType("F32", 0, 1, 4, FORMAT, decode)
