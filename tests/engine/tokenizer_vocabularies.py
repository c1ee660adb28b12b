"""Vocabularies for tests: those of this repository, and the larger ones where they are present."""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.golden_files import GOLDEN, shared_golden
from turbodflash_engine.gguf import open_gguf
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.tokenizer import Tokenizer, load_tokenizer

SMALL = ("tiny-bpe-llama", "tiny-bpe-qwen2", "tiny-bpe-qwen35", "tiny-gemma4", "tiny-spm-gemma3")
BYTE_LEVEL = ("tiny-bpe-llama", "tiny-bpe-qwen2", "tiny-bpe-qwen35", "smollm")

_PREFIX, _SUFFIX = "ggml-vocab-", ".gguf.xz"
_LARGE = {
    path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX): path
    for path in shared_golden(f"vocab/{_PREFIX}*{_SUFFIX}")
}
SAME_WORDS = {"qwen2": "qwen35"}
"""Vocabularies that differ from another only in how they split text."""

ALL = (
    *SMALL,
    "smollm",
    *_LARGE,
    *(name for name, other in SAME_WORDS.items() if other in _LARGE),
)


@cache
def metadata(name: str) -> Metadata:
    """What the model file says about its tokenizer."""
    if name in SAME_WORDS:
        values = dict(metadata(SAME_WORDS[name]).items())
        return Metadata(values | {"tokenizer.ggml.pre": name})
    if name in _LARGE:
        return _from_file(_LARGE[name])
    values = dict(_stored(name)["metadata"])
    if name == "smollm":  # its tokens are a few, then what each merge makes
        made = [merge.replace(" ", "") for merge in values["tokenizer.ggml.merges"]]
        values["tokenizer.ggml.tokens"] = values["tokenizer.ggml.tokens"] + made
        values["tokenizer.ggml.token_type"] = values["tokenizer.ggml.token_type"] + [1] * len(made)
    return Metadata(values)


@cache
def tokenizer(name: str) -> Tokenizer:
    return load_tokenizer(metadata(name))


def golden(name: str) -> Mapping[str, Any]:
    """What the reference makes of 117 strings with this vocabulary."""
    stored = GOLDEN / "tokenizers" / f"{name}.json.xz"
    if stored.exists():
        return _stored(name)
    (path,) = shared_golden(f"tokenizers/{name}.json")
    return json.loads(path.read_text("utf-8"))


def bare(**values: Any) -> Metadata:
    """Metadata of a small tokenizer written out in a test: `tokens=[...]`, `model="llama"`."""
    return Metadata({f"tokenizer.ggml.{key}": value for key, value in values.items()})


@cache
def _stored(name: str) -> Any:
    return json.loads(lzma.decompress((GOLDEN / "tokenizers" / f"{name}.json.xz").read_bytes()))


def _from_file(path: Path) -> Metadata:
    with TemporaryDirectory() as folder:
        unpacked = Path(folder) / path.stem
        unpacked.write_bytes(lzma.decompress(path.read_bytes()))
        with open_gguf(unpacked) as file:
            keys = [key for key, _ in file.metadata.items() if key.startswith("tokenizer.")]
            return Metadata({key: file.metadata.get(key) for key in keys})
