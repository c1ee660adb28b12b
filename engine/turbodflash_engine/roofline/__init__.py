"""What speeds a card allows, argued from bytes, operations and launches: predictions, no more."""

from __future__ import annotations

from dataclasses import dataclass

from turbodflash_engine.opening import open_files
from turbodflash_engine.options import LoadOptions
from turbodflash_engine.roofline.cards import Gpu, gpu, gpus
from turbodflash_engine.roofline.files import draft_file_shapes, file_shape
from turbodflash_engine.roofline.passes import Cache, Pass
from turbodflash_engine.roofline.published import Predicted, Run, predict_runs
from turbodflash_engine.roofline.speeds import Drafted, Speeds, speeds

__all__ = [
    "Gpu",
    "Pass",
    "Predicted",
    "PredictedFile",
    "Run",
    "Speeds",
    "gpu",
    "gpus",
    "predict_file",
    "predict_reference_runs",
]

BLOCK = 16
PROMPT = 512


@dataclass(frozen=True, slots=True)
class PredictedFile:
    """Speeds of a model file on a card, at each depth of context.

    prompt: tokens of the prompt. tokens_per_step: assumed of the draft.
    """

    name: str
    gpu: str
    parameters: float
    prompt: int
    tokens_per_step: float
    depths: dict[int, Speeds]


def predict_reference_runs(card: str) -> tuple[Predicted, ...]:
    """The published runs on a card; raises Unknown for a card that is not."""
    return predict_runs(gpu(card))


def predict_file(options: LoadOptions, card: str, tokens_per_step: float = 1.0) -> PredictedFile:
    """The model of the options, with their draft and cache types. Weights are not read.

    tokens_per_step: what a step is taken to bring when drafts are verified.
    """
    found = gpu(card)
    with open_files(options) as files:
        shape, drafts = file_shape(files.model), draft_file_shapes(files)
        context = options.context or files.model.config.context
    cache = Cache(options.cache_type_k, options.cache_type_v)
    drafted = Drafted(*drafts, BLOCK, tokens_per_step) if drafts else None
    depths = sorted({min(depth, context) for depth in (0, 1024, 8192, 32768, context)})
    return PredictedFile(
        name=shape.name,
        gpu=found.name,
        parameters=shape.numbers,
        prompt=min(PROMPT, context),
        tokens_per_step=tokens_per_step,
        depths={
            depth: speeds(
                shape, found, cache, depth=depth, prompt=min(PROMPT, context), drafted=drafted
            )
            for depth in depths
        },
    )
