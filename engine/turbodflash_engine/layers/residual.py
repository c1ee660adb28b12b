"""How a part of a block joins the residual stream again."""

from __future__ import annotations

from collections.abc import Callable

from turbodflash_engine.layers.tensors import Tensors
from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm


def closing(
    device: Device, output: Callable[..., Array], post: RmsNorm | None, scale: float = 1.0
) -> Callable[[Array, Array], Array]:
    """(y, x) -> scale * (x + post(output(y))), where the last product of a part is `output`.

    With neither a norm nor a scale the product adds the stream by itself.
    """
    if post is None and scale == 1.0:
        return output
    add = device.bind("add", norms=(None, post), scale=scale)

    def close(y: Array, x: Array) -> Array:
        added: Array = add(x, output(y))
        return added

    return close


def scale_of(tensors: Tensors, name: str) -> float:
    """The number of that name in a file; 1 where there is none."""
    return float(tensors.vector(name)[0]) if name in tensors else 1.0
