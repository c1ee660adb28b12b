"""What is known of a model once it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from turbodflash_engine.options import SampleOptions

FILE_TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
}
"""What the number `general.file_type` stands for: the mix of weight types."""


class Memory(NamedTuple):
    """Bytes. scratch: what a pass of the largest size needs.

    host: what stays beside them in the memory of the process, such as the tokenizer.
    """

    weights: int
    cache: int
    scratch: int
    host: int = 0


class Work(NamedTuple):
    """What a token costs, keys and values aside.

    nbytes: of weights that are read for it alone, of experts those that it chooses, of a head what
    finds its largest logit. macs: multiplications with weights in the layers.
    """

    nbytes: int = 0
    macs: int = 0


class DraftInfo(NamedTuple):
    """What drafts for a loaded model.

    kind: types as `--spec-type` spells them, in the order asked, such as "draft-dflash" or
        "ngram-simple, draft-dflash". path, file_bytes, parameters: of the draft's file, if any.
    taps: layers of the model that it sees the inputs of. longest: the most tokens of one draft.
    context: positions of its own cache; 0 = it has none.
    synthetic: acceptance is drawn at random, and the text is not real.
    fallback: the type that guesses where the draft does not pay, if any.
    """

    kind: str
    path: Path | None
    taps: tuple[int, ...]
    longest: int
    memory: Memory
    file_bytes: int = 0
    parameters: int = 0
    context: int = 0
    synthetic: bool = False
    fallback: str | None = None


class ModelInfo(NamedTuple):
    """A loaded model.

    parameters: numbers in the file's tensors. context: positions its cache holds.
    cache_type_k, cache_type_v: what keys and values are stored in; types of several layers are
        joined by "+", the most frequent first. cache_rotated: whether plain quantised ones are
        rotated. cache_row_bytes: of a position, in all layers.
    sample_defaults: the built-in ones overridden by the file's; sample_keys: which keys did so.
    notes: sentences that a person should read. draft: None = plain decoding. token: its costs.
    """

    name: str
    path: Path
    architecture: str
    file_type: str
    file_bytes: int
    parameters: int
    layers: int
    context: int
    trained_context: int
    device: str
    cache_type_k: str
    cache_type_v: str
    has_template: bool
    sample_defaults: SampleOptions
    sample_keys: tuple[str, ...]
    memory: Memory
    notes: tuple[str, ...] = ()
    cache_rotated: bool = False
    cache_row_bytes: int = 0
    draft: DraftInfo | None = None
    token: Work = Work()
