"""F16: values as they are."""

from turbodflash_engine.quant._base import Bytes, WeightType
from turbodflash_kernels.planar import Format, Planar

FORMAT = Format(dense="f16")


def decode(raw: Bytes) -> Planar:
    return Planar(FORMAT, raw.view("<f2"))


PLUGIN = WeightType("F16", 1, 1, 2, FORMAT, decode)
