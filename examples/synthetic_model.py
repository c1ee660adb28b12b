"""A model file of real measures and random weights, of any size; it is never whole in memory.

    python examples/synthetic_model.py big.gguf --arch qwen3moe --gb 4
    python examples/synthetic_model.py small.gguf --layers 2 --set embedding_length=256

It speaks no language: it is there to be loaded, planned, timed. Types are those of a Q4_K_M file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from numpy.typing import NDArray
from tokenizers.pre_tokenizers import ByteLevel

from turbodflash_engine import plugins
from turbodflash_engine.errors import TurbodflashError
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.metadata import Metadata

COMMON = {
    "context_length": 32768,
    "feed_forward_length": 6144,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.freq_base": 1e6,
}
QWEN36_35B_A3B = {
    "vocab_size": 248_320,
    "embedding_length": 2048,
    "attention.head_count": 16,
    "attention.head_count_kv": 2,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "expert_count": 256,
    "expert_used_count": 8,
    "expert_feed_forward_length": 512,
}
QWEN3_8B = {
    "vocab_size": 151_936,
    "embedding_length": 4096,
    "feed_forward_length": 12288,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
    "attention.key_length": 128,
    "attention.value_length": 128,
}
HYBRID = {
    "rope.freq_base": 1e7,
    "rope.dimension_count": 64,
    "rope.dimension_sections": [11, 11, 10, 0],
    "full_attention_interval": 4,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 128,
    "ssm.group_count": 16,
    "ssm.time_step_rank": 32,
    "ssm.inner_size": 4096,
    "expert_shared_feed_forward_length": 512,
}
SHAPES = {
    "qwen3": COMMON | QWEN3_8B,
    "qwen3moe": COMMON | QWEN36_35B_A3B,
    "qwen35moe": COMMON | QWEN36_35B_A3B | HYBRID,
}
"""Metadata by architecture; without the number of layers."""

CHUNK = 16 << 20  # bytes that are made at once
BYTES = 256  # tokens that are one byte each


class Blocks(NamedTuple):
    """Of a type of weights: where in a block its float16 factors are, and what they are for
    weights of size 1, all other bytes being random."""

    factors: tuple[tuple[int, float], ...]


BLOCKS = {
    "Q4_K": Blocks(((0, 1 / 256), (2, 7.5 / 256))),
    "Q6_K": Blocks(((208, 1 / 1367),)),
    "Q5_0": Blocks(((0, 1 / 9.2),)),
    "Q8_0": Blocks(((0, 1 / 74),)),
}
NARROW = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}  # for rows that are not whole blocks of 256
FLOATS = ("ffn_gate_inp", "ssm_conv1d", "ssm_alpha", "ssm_beta")  # matrices that stay float32
BETTER = ("output.", ".attn_v.", ".ffn_down")  # matrices that a Q4_K_M file has in Q6_K


class Made(NamedTuple):
    """A tensor of the file. shape: the row length first."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def kind(self) -> GGMLQuantizationType:
        return GGMLQuantizationType[self.type]

    @property
    def nbytes(self) -> int:
        block, size = GGML_QUANT_SIZES[self.kind]
        return prod(self.shape) // block * size


def metadata_of(architecture: str, layers: int, changes: dict[str, float]) -> Metadata:
    keys = SHAPES[architecture] | changes | {"block_count": layers}
    values = {f"{architecture}.{key}": value for key, value in keys.items()}
    return Metadata({"general.architecture": architecture, **values}, "synthetic")


def tensors_of(metadata: Metadata) -> list[Made]:
    """All that the architecture asks for, and a head of its own."""
    plugin = plugins.find("models", metadata.architecture)
    layout = plugin.layout(plugin.read(metadata, RopeOverrides()), ())
    head = {"output.weight": layout.optional["output.weight"]}
    shapes = {**layout.required, **head}
    return [Made(name, _type_of(name, shape), shape) for name, shape in shapes.items()]


def _type_of(name: str, shape: tuple[int, ...]) -> str:
    if len(shape) == 1 or any(word in name for word in FLOATS):
        return "F32"
    better = any(word in f".{name}" for word in BETTER) or name.startswith(BETTER[0])
    type = "Q6_K" if better else "Q4_K"
    return type if shape[0] % 256 == 0 else NARROW[type]


def layers_for(architecture: str, nbytes: float, changes: dict[str, float]) -> int:
    """How many fill so many bytes, as nearly as whole layers can, with one of each kind."""

    def size(layers: int) -> int:
        return sum(each.nbytes for each in tensors_of(metadata_of(architecture, layers, changes)))

    period = int(SHAPES[architecture].get("full_attention_interval", 1))
    each = (size(2 * period) - size(period)) / period
    return max(round((nbytes - size(period)) / each), 0) + period


def contents(tensor: Made, random: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
    """The bytes of a tensor, chunk by chunk."""
    if tensor.type == "F32":
        yield _floats(tensor, random).astype("<f4").reshape(-1).view(np.uint8)
        return
    size = GGML_QUANT_SIZES[tensor.kind][1]
    blocks, most = tensor.nbytes // size, CHUNK // size
    unit = tensor.shape[0] ** -0.5
    for first in range(0, blocks, most):
        chunk = random.integers(0, 256, (min(blocks - first, most), size), np.uint8)
        for at, factor in BLOCKS[tensor.type].factors:
            chunk[:, at : at + 2] = np.array([factor * unit], "<f2").view(np.uint8)
        yield chunk.reshape(-1)


def _floats(tensor: Made, random: np.random.Generator) -> NDArray[np.float64]:
    numbers = random.standard_normal(prod(tensor.shape))
    if tensor.name.endswith("ssm_a"):
        return -np.abs(numbers)
    if len(tensor.shape) == 1:
        return 1 + numbers / 8
    return 2 * numbers * tensor.shape[0] ** -0.5


def write(path: Path, metadata: Metadata, seed: int = 0) -> None:
    writer = GGUFWriter(path, metadata.architecture)
    for key, value in metadata.items():
        if key != "general.architecture":
            _add(writer, key, value)
    _add_vocabulary(writer, int(metadata.for_architecture().need("vocab_size", int)))
    tensors = tensors_of(metadata)
    for each in tensors:
        kind = np.dtype(np.float32)
        writer.add_tensor_info(each.name, each.shape[::-1], kind, each.nbytes, each.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    assert writer.fout is not None
    random = np.random.default_rng(seed)
    file: BinaryIO = writer.fout[0]
    for each in tensors:
        writer.write_padding(file, file.tell())
        for chunk in contents(each, random):
            chunk.tofile(file)
    writer.close()


def _add(writer: GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)


def _add_vocabulary(writer: GGUFWriter, size: int) -> None:
    """A token for each byte, the end of a text, and words that no text holds."""
    tokens = [*sorted(ByteLevel.alphabet()), "<|endoftext|>"]
    tokens += [f"<word {index}>" for index in range(size - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * BYTES + [3] + [1] * (size - BYTES - 1))
    writer.add_token_merges([f"{tokens[0]} {tokens[1]}"])
    writer.add_eos_token_id(BYTES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--arch", choices=sorted(SHAPES), default="qwen3moe")
    parser.add_argument("--gb", type=float, default=4.0, help="about how large")
    parser.add_argument("--layers", type=int, help="how many, instead of a size")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="other metadata"
    )
    asked = parser.parse_args()
    changes = {key: int(value) for key, _, value in (word.partition("=") for word in asked.set)}
    layers = asked.layers or layers_for(asked.arch, asked.gb * 1e9, changes)
    try:
        write(asked.path, metadata_of(asked.arch, layers, changes))
    except TurbodflashError as error:
        asked.path.unlink(missing_ok=True)
        sys.exit(f"error: {error}")
    sys.stderr.write(f"{asked.path}: {layers} layers, {asked.path.stat().st_size / 1e9:.2f} GB\n")


if __name__ == "__main__":
    main()
