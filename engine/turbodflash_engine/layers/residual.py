"""How a part of a block joins the residual stream again."""

from __future__ import annotations

from collections.abc import Callable

from turbodflash_kernels.device import Device
from turbodflash_kernels.op import Array, RmsNorm


def closing(
    device: Device, output: Callable[..., Array], post: RmsNorm | None
) -> Callable[[Array, Array], Array]:
    """(y, x) -> x + post(output(y)), where the last product of a part is `output`.

    Without a norm the product adds the stream by itself.
    """
    if post is None:
        return output
    add = device.bind("add", norms=(None, post))

    def close(y: Array, x: Array) -> Array:
        added: Array = add(x, output(y))
        return added

    return close
