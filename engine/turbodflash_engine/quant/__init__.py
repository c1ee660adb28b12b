"""Weight types, one a file: how the blocks of a GGUF tensor become planar.

A type that has a file here works; to add one, add the file.
"""

from turbodflash_engine import plugins
from turbodflash_engine.errors import BadModel
from turbodflash_engine.quant._base import WeightType

__all__ = ["WeightType", "weight_type"]


def weight_type(name: str, tensor: str) -> WeightType:
    """The weight type called `name` in GGUF, such as "Q4_K"; `tensor` is who needs it."""
    known = plugins.names("quant")
    if name.lower() not in known:
        raise BadModel(
            f"tensor {tensor!r} uses quantization {name}, which this version cannot read",
            hint=f"get the model in one of: {', '.join(known).upper()}",
        )
    found: WeightType = plugins.find("quant", name.lower())
    return found
