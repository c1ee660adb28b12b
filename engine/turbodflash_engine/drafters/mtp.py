"""draft-mtp: the block behind a model's trunk that was trained to predict the token after the next.

It lies in the model's own file, or in one beside it. A pair stands at the position of its feature,
as in training; llama.cpp has each one place later, and a pair of the first token and zeros before
all others, which no training saw.
"""

from __future__ import annotations

from turbodflash_engine.drafters._base import Drafter, FileKind, Setting
from turbodflash_engine.drafters._mtp.config import (
    MtpConfig,
    check_mtp,
    claims_mtp,
    mtp_layout,
    read_mtp,
    within_mtp,
)
from turbodflash_engine.drafters._mtp.layer import Layer, Norms
from turbodflash_engine.drafters._pairs.drafter import PairDrafter, Parts
from turbodflash_engine.drafters._words import EMBEDDING, HEAD, Words, own_table
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.head import Head
from turbodflash_engine.layers.tensors import Tensors
from turbodflash_engine.models._base import Shared
from turbodflash_kernels.device import Device, Weight


class Mtp(PairDrafter):
    """As all drafters of pairs."""

    name = "draft-mtp"

    def __init__(self, config: MtpConfig, tensors: Tensors, setting: Setting) -> None:
        device, target, plan = setting.device, setting.target, setting.plan
        if target.norm is None:
            raise BadModel(f"'{config.source}' needs the norm before the model's head")
        words = _words(device, tensors, config, target)
        (format,) = plan.types.of_layers(config.kv_shapes)
        memory = format.room(device, plan.positions)
        layer = Layer(device, tensors, config, memory, words.embedding, Norms(*target.norm))
        parts = Parts(
            taps=(target.layers,),
            tap_width=target.width,
            width=target.width,
            words=words,
            memory=memory,
            layer=layer,
            head=Head(device, words.head, None),
            weight_bytes=tensors.weight_bytes(device.bytes_per_weight),
        )
        super().__init__(parts, setting)


def _words(device: Device, tensors: Tensors, config: MtpConfig, target: Shared) -> Words:
    """The block's own tables, those of its file, or the model's."""

    def own(*names: str) -> Weight | None:
        found = (own_table(device, tensors, name, target.width) for name in names)
        return next((table for table in found if table is not None), None)

    nextn = f"{config.prefix}nextn."
    embedding = own(f"{nextn}embed_tokens.weight", EMBEDDING) or target.embedding.on(device)
    head = own(f"{nextn}shared_head_head.weight", HEAD) or target.head.on(device)
    return Words(embedding, head, None, target.vocabulary)


def build(config: MtpConfig, tensors: Tensors, setting: Setting) -> Drafter:
    return Mtp(config, tensors, setting)


PLUGIN = FileKind(claims_mtp, read_mtp, check_mtp, mtp_layout, build, within=within_mtp)
