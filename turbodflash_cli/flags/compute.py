"""Context, cache, threads and devices."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, ClassVar

from turbodflash_cli.flags.flag import flag
from turbodflash_cli.flags.values import choice, number, on_off_auto, whole
from turbodflash_engine import BadUsage

CACHE_TYPES = ("f16", "f32")
LATER_CACHE_TYPES = (
    *("bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"),
    *("turbo2", "turbo3", "turbo4"),
)


def cache_type(name: str, written: str) -> str:
    """A type the KV cache can have in this version."""
    word = written.strip().lower()
    if word in CACHE_TYPES:
        return word
    if word in LATER_CACHE_TYPES:
        raise BadUsage(
            f"{name} {word} is not available in this version: quantised caches come later.",
            hint=f"use one of: {', '.join(CACHE_TYPES)}",
        )
    near = get_close_matches(word, CACHE_TYPES + LATER_CACHE_TYPES, n=1)
    first = [kind for kind in near if kind in CACHE_TYPES]
    known = dict.fromkeys((*first, *CACHE_TYPES))
    raise BadUsage(
        f"unknown cache type {written!r} for {name}.", hint=f"there are: {', '.join(known)}"
    )


def layers_on_gpu(name: str, written: str) -> str:
    """`auto` or `0`: every other number asks for a GPU, which this version does not have."""
    word = written.strip().lower()
    if word in ("auto", "-1", "0"):
        return word
    if word != "all":
        whole(low=0)(name, word)
    raise BadUsage(
        f"{name} {written} asks for a GPU; this version computes on the CPU.",
        hint=f"leave {name} out, or use {name} 0",
    )


def device_name(name: str, written: str) -> str:
    """A device this version has; `none` and `auto` mean the CPU."""
    word = written.strip().lower()
    if word in ("cpu", "none", "auto"):
        return "cpu"
    if word == "reference":
        return word
    raise BadUsage(
        f"there is no device {written!r}; this version computes on the CPU.",
        hint=f"leave {name} out, or use {name} cpu",
    )


def one_sequence(name: str, written: str) -> int:
    """Only 1: one sequence is decoded at a time."""
    if whole(low=1)(name, written) != 1:
        raise BadUsage(
            f"{name} {written} is not supported; one sequence is decoded at a time.",
            hint=f"use {name} 1",
        )
    return 1


@dataclass(frozen=True, slots=True)
class ContextFlags:
    """How much the model can look back on, and how that is stored."""

    panel: ClassVar[str] = "Context and KV cache"

    context: Annotated[
        int | None,
        flag(
            "-c",
            "--ctx-size",
            help="Tokens of context; 4k is 4096.",
            metavar="N",
            parse=whole(low=0, thousands=True),
            env="LLAMA_ARG_CTX_SIZE",
            default="0 = as trained",
            common=True,
        ),
    ] = None
    cache_type_k: Annotated[
        str | None,
        flag(
            "-ctk",
            "--cache-type-k",
            help="Type of the cached keys: f16 or f32.",
            metavar="TYPE",
            parse=cache_type,
            env="LLAMA_ARG_CACHE_TYPE_K",
            default="f16",
            choices=CACHE_TYPES,
            common=True,
        ),
    ] = None
    cache_type_v: Annotated[
        str | None,
        flag(
            "-ctv",
            "--cache-type-v",
            help="Type of the cached values.",
            metavar="TYPE",
            parse=cache_type,
            env="LLAMA_ARG_CACHE_TYPE_V",
            default="f16",
            choices=CACHE_TYPES,
            common=True,
        ),
    ] = None
    batch: Annotated[
        int | None,
        flag(
            "-b",
            "--batch-size",
            help="Prompt tokens between two progress reports.",
            metavar="N",
            parse=whole(low=1),
            env="LLAMA_ARG_BATCH",
            default="2048",
        ),
    ] = None
    ubatch: Annotated[
        int | None,
        flag(
            "-ub",
            "--ubatch-size",
            help="Prompt tokens computed in one pass.",
            metavar="N",
            parse=whole(low=1),
            env="LLAMA_ARG_UBATCH",
            default="512",
        ),
    ] = None
    parallel: Annotated[
        int | None,
        flag(
            "-np",
            "--parallel",
            help="Sequences; only 1.",
            metavar="N",
            parse=one_sequence,
            env="LLAMA_ARG_N_PARALLEL",
            default="1",
        ),
    ] = None
    flash_attn: Annotated[
        str | None,
        flag(
            "-fa",
            "--flash-attn",
            help="Accepted; attention is always fused.",
            metavar="on|off|auto",
            parse=on_off_auto,
            env="LLAMA_ARG_FLASH_ATTN",
            default="auto",
            bare="on",
            choices=("on", "off", "auto"),
        ),
    ] = None
    rope_scaling: Annotated[
        str | None,
        flag(
            "--rope-scaling",
            help="How positions beyond training are scaled.",
            metavar="none|linear|yarn",
            parse=choice("none", "linear", "yarn"),
            env="LLAMA_ARG_ROPE_SCALING_TYPE",
            default="from the model",
            choices=("none", "linear", "yarn"),
        ),
    ] = None
    rope_scale: Annotated[
        float | None,
        flag(
            "--rope-scale",
            help="Context scaling factor.",
            metavar="N",
            parse=number(above=0),
            env="LLAMA_ARG_ROPE_SCALE",
        ),
    ] = None
    rope_freq_base: Annotated[
        float | None,
        flag(
            "--rope-freq-base",
            help="Base of the rotary frequencies.",
            metavar="N",
            parse=number(above=0),
            env="LLAMA_ARG_ROPE_FREQ_BASE",
            default="from the model",
        ),
    ] = None
    rope_freq_scale: Annotated[
        float | None,
        flag(
            "--rope-freq-scale",
            help="Factor on the rotary frequencies, 1/N of --rope-scale N.",
            metavar="N",
            parse=number(above=0),
            env="LLAMA_ARG_ROPE_FREQ_SCALE",
        ),
    ] = None
    yarn_orig_ctx: Annotated[
        int | None,
        flag(
            "--yarn-orig-ctx",
            help="Context the model was trained on, for YaRN.",
            metavar="N",
            parse=whole(low=0),
            env="LLAMA_ARG_YARN_ORIG_CTX",
            default="0 = from the model",
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class ComputeFlags:
    """What computes."""

    panel: ClassVar[str] = "CPU and devices"

    threads: Annotated[
        int | None,
        flag(
            "-t",
            "--threads",
            help="Threads; -1 = all usable cores.",
            metavar="N",
            parse=whole(high=4096),
            env="LLAMA_ARG_THREADS",
            default="-1",
            common=True,
        ),
    ] = None
    threads_batch: Annotated[
        int | None,
        flag(
            "-tb",
            "--threads-batch",
            help="Threads for prompts.",
            metavar="N",
            parse=whole(high=4096),
            default="as --threads",
            common=True,
        ),
    ] = None
    gpu_layers: Annotated[
        str | None,
        flag(
            "-ngl",
            "--gpu-layers",
            "--n-gpu-layers",
            help="Layers on a GPU; this version takes 0 and auto.",
            metavar="N",
            parse=layers_on_gpu,
            env="LLAMA_ARG_N_GPU_LAYERS",
            default="auto",
            choices=("0", "auto"),
        ),
    ] = None
    device: Annotated[
        str | None,
        flag(
            "-dev",
            "--device",
            help="cpu, or reference: plain, slow, exact.",
            metavar="NAME",
            parse=device_name,
            env="LLAMA_ARG_DEVICE",
            default="cpu",
            choices=("cpu", "reference"),
        ),
    ] = None
    warmup: Annotated[
        bool,
        flag(
            "--warmup",
            help="An empty run before the clock starts.",
            off=("--no-warmup",),
            default="on",
        ),
    ] = True
