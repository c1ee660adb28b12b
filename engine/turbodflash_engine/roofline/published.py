"""The reference runs: what was published, and what is predicted for the same run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from turbodflash_engine.roofline.cards import Gpu, gpus
from turbodflash_engine.roofline.data import read
from turbodflash_engine.roofline.described import draft_shape, injection_shape, model_shape
from turbodflash_engine.roofline.passes import Cache, matrix_bytes
from turbodflash_engine.roofline.shapes import Shape
from turbodflash_engine.roofline.speeds import DRAFT_CACHE, Drafted, Speeds, speeds

LONG_PROMPT = 512


@dataclass(frozen=True, slots=True)
class Run:
    """Figures that were published, in tokens a second; None = not given.

    version: of the program that was measured. context: positions that its cache had; the text was
    short.
    """

    version: int
    model: str
    weights: str
    draft: str
    context: int
    cache_k: str
    cache_v: str
    prompt_off: float | None
    prompt_on: float | None
    decode_off: float | None
    decode_on: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A run and what is predicted for it.

    memory: bytes of matrices and caches, draft included, with all of the run's context.
    here: at the run's own short prompt and text. full: with its whole context in the cache, after
    a long prompt.
    """

    run: Run
    gpu: str
    name: str
    tokens_per_step: float
    memory: float
    here: Speeds
    full: Speeds


def reference_runs() -> tuple[Run, ...]:
    """As they were published."""
    return tuple(Run(**fields) for fields in read("runs")["runs"])


def published_on() -> Gpu:
    """The card of the published runs."""
    return gpus()[read("runs")["gpu"]]


def predict_runs(gpu: Gpu) -> tuple[Predicted, ...]:
    """Each reference run on a card."""
    common, models = read("runs"), read("models")
    return tuple(_predicted(run, models[run.model], common, gpu) for run in reference_runs())


def _predicted(run: Run, model: dict[str, Any], common: dict[str, Any], gpu: Gpu) -> Predicted:
    types = common["weights"][run.weights]
    draft = common["drafts"][run.model]
    shape = model_shape(model, **types)
    drafted = Drafted(
        draft_shape(draft, model, matrices=run.draft, head=types["head"]),
        injection_shape(draft, model, matrices=run.draft),
        common["rows"],
        common["tokens_per_step"][run.model],
    )
    cache = Cache(run.cache_k, run.cache_v)
    short, long = (common["depth"], common["prompt_tokens"]), (run.context, LONG_PROMPT)
    here, full = (
        speeds(shape, gpu, cache, depth=depth, prompt=prompt, drafted=drafted)
        for depth, prompt in (short, long)
    )
    needed = memory(shape, cache, run.context, types["head"]) + memory(
        drafted.draft, DRAFT_CACHE, run.context, types["head"]
    )
    needed -= matrix_bytes(types["head"], shape.head)  # the draft uses that of the model
    return Predicted(run, gpu.name, model["name"], drafted.tokens_per_step, needed, here, full)


def memory(shape: Shape, cache: Cache, context: int, head: str) -> float:
    """Bytes of the matrices and of the cache at a context."""
    numbers = [*shape.matrices.items(), (head, shape.looked_up)]
    numbers += shape.experts.matrices.items() if shape.experts else ()
    kept = sum(cache.per_position(each) * each.seen(context) for each in shape.attending)
    return kept + shape.state + sum(matrix_bytes(type, count) for type, count in numbers)
