"""llama.cpp's perplexity of a text, from its logits, scored as `turbodflash perplexity` does.

python examples/perplexity_llama_cpp.py MODEL.gguf TEXT [--chunks N] [-c 512] [--cache-type q4_0]

It needs numpy and llama-cpp-python (`pip install llama-cpp-python`).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np


def load(model: Path, context: int, cache_type: str) -> Any:
    kind = getattr(llama_cpp, f"GGML_TYPE_{cache_type.upper()}")
    return llama_cpp.Llama(
        str(model),
        n_ctx=context,
        n_batch=context,
        logits_all=True,
        verbose=False,
        type_k=kind,
        type_v=kind,
        flash_attn=True,
    )


def surprise(model: Any, chunk: list[int]) -> Any:
    """Negative log-probabilities of the tokens in the second half of a chunk."""
    model.reset()
    model.eval(chunk)
    half = len(chunk) // 2
    logits = np.array(model.scores[half : len(chunk) - 1], np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    normaliser = np.log(np.exp(logits).sum(axis=1))
    return normaliser - logits[np.arange(len(logits)), chunk[half + 1 :]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("-c", "--context", type=int, default=512)
    parser.add_argument("--chunks", type=int)
    parser.add_argument("--cache-type", default="f16")
    given = parser.parse_args()
    model = load(given.model, given.context, given.cache_type)
    text = given.text.read_text("utf-8").removesuffix("\n")
    tokens = model.tokenize(text.encode(), add_bos=False, special=False)
    found: list[float] = []
    for start in range(0, len(tokens) - given.context + 1, given.context)[: given.chunks]:
        found += surprise(model, tokens[start : start + given.context]).tolist()
        print(f"[{start // given.context + 1}]{np.exp(np.mean(found)):.4f}", flush=True)
    ppl, error = np.exp(np.mean(found)), np.std(found) / np.sqrt(len(found) - 1)
    print(f"Final estimate: PPL = {ppl:.4f} +/- {ppl * error:.5f}")


if __name__ == "__main__":
    main()
