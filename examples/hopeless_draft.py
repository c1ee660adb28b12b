"""A draft that is never right: a copy of one, its weights replaced by noise.

With it, `turbodflash bench -md` shows what drafting costs where it does not pay.

python examples/hopeless_draft.py DRAFT.gguf HOPELESS.gguf
"""

from __future__ import annotations

import shutil
import sys

import gguf
import numpy as np


def main(draft: str, hopeless: str) -> None:
    shutil.copyfile(draft, hopeless)
    rng = np.random.default_rng(0)
    for tensor in gguf.GGUFReader(hopeless, "r+").tensors:
        if tensor.tensor_type == gguf.GGMLQuantizationType.Q8_0:
            blocks = tensor.data.reshape(-1, 34)  # of 32 weights: a scale, then their codes
            blocks[:, 2:] = rng.integers(0, 256, (len(blocks), 32), np.uint8)
        elif len(tensor.shape) > 1:
            sys.exit(f"{tensor.name} is {tensor.tensor_type.name}; this example knows Q8_0 only")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
