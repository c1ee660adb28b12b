"""Whether a draft that looks at a model's residual rows was made for that model."""

from __future__ import annotations

from collections.abc import Sequence

from turbodflash_engine.errors import BadModel
from turbodflash_engine.models._base import Form

ANOTHER = "get a draft that was made for this model, or leave out -md"


def check_width(source: str, width: int, target: Form) -> None:
    """Raises BadModel unless the rows are as wide as the draft expects."""
    if width != target.width:
        raise BadModel(
            f"'{source}' drafts for a model of width {width}, "
            f"but this one has width {target.width}",
            hint=ANOTHER,
        )


def check_taps(
    source: str, key: str, taps: Sequence[int], target: Form, *, outputs: bool = False
) -> None:
    """Raises BadModel unless the model shows the inputs of all these layers, one at least.

    key: of the file, with its full name. outputs: it names the layers before them.
    """
    if not taps:
        raise BadModel(f"'{source}' looks at no layer of the model", hint=ANOTHER)
    layers = target.layers
    for layer in taps:
        if 0 <= layer < layers:
            continue
        last = "the output of the model's last layer"
        raise BadModel(
            f"'{source}': metadata key '{key}' has the layer {layer - outputs}, which is "
            f"{last if layer == layers else 'no layer of the model'}; "
            f"of {layers} layers, the inputs of 0 to {layers - 1} can be looked at",
            hint=ANOTHER,
        )
