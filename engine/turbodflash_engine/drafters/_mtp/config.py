"""What a file says of the block that predicts the token after the next."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from turbodflash_engine import plugins
from turbodflash_engine.cache import KVShape
from turbodflash_engine.drafters._fit import check_width
from turbodflash_engine.drafters._words import EMBEDDING, HEAD
from turbodflash_engine.errors import BadModel
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Layout
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Architecture, Form
from turbodflash_engine.models._hybrid import HybridConfig, ahead_layout
from turbodflash_engine.options import SpecOptions

ARCHITECTURES = ("qwen35", "qwen35moe")
NORM = "output_norm.weight"
HEADS = "nextn_predict_layers"


class MtpConfig(NamedTuple):
    """model: the configuration of the model whose block it is. layers: of that model's trunk."""

    source: str
    model: HybridConfig

    @property
    def block(self) -> int:
        """The number of the block."""
        return self.model.layers

    @property
    def prefix(self) -> str:
        return f"blk.{self.block}."

    @property
    def kv_shapes(self) -> tuple[KVShape, ...]:
        return (self.model.attention[self.block].kv_shape,)

    @property
    def state_bytes(self) -> Mapping[int, int]:
        return {}

    @property
    def tap_values(self) -> int:
        """Numbers of the model that it taps, per row."""
        return self.model.width

    @property
    def scratch_values(self) -> int:
        """Numbers alive at once per row of the model that is read."""
        attention, ffn = self.model.attention[self.block], self.model.ffn[self.block]
        return 6 * self.model.width + attention.scratch_values + ffn.scratch_values


def claims_mtp(metadata: Metadata, names: Container[str]) -> bool:
    """A file of the block alone: a whole model that has one is a model."""
    if metadata.architecture not in ARCHITECTURES or "blk.0.attn_norm.weight" in names:
        return False
    blocks = metadata.for_architecture().get("block_count", 0)
    return f"blk.{blocks - 1}.nextn.eh_proj.weight" in names


def read_mtp(metadata: Metadata) -> MtpConfig:
    heads = metadata.for_architecture().get(HEADS, 0) if _supported(metadata) else 0
    if heads != 1:
        raise BadModel(
            f"'{metadata.source}' has {heads} blocks that predict tokens further ahead, "
            "expected one",
            hint="use another draft, or a file of this model that was converted with its MTP block",
        )
    architecture: Architecture = plugins.find("models", metadata.architecture)
    return MtpConfig(metadata.source, architecture.read(metadata, RopeOverrides()))


def within_mtp(metadata: Metadata, names: Iterable[str]) -> list[str]:
    """The tensors of the block in a file that holds the model, too."""
    prefix = read_mtp(metadata).prefix
    return [name for name in names if name.startswith(prefix)]


def check_mtp(config: MtpConfig, target: Form, options: SpecOptions) -> None:
    """Raises BadModel unless the block was made for a model of this form."""
    check_width(config.source, config.model.width, target)
    if config.model.vocabulary != target.vocabulary:
        raise BadModel(
            f"'{config.source}' predicts {config.model.vocabulary:,} tokens, "
            f"but the model has {target.vocabulary:,}",
            hint="use the block of the model's own file",
        )


def mtp_layout(config: MtpConfig, present: Container[str]) -> Layout:
    wanted = ahead_layout(config.model, config.block, present)
    table = (config.model.width, config.model.vocabulary)
    wanted.optional |= {EMBEDDING: table, HEAD: table, NORM: (config.model.width,)}
    return wanted


def _supported(metadata: Metadata) -> bool:
    return metadata.architecture in ARCHITECTURES
