"""How far the model looks back, and how that is stored."""

from difflib import get_close_matches
from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import choice, number, on_off_auto, whole
from turbodflash_engine import CACHE_TYPES, KV_PROTECTIONS, KV_ROTATIONS, BadUsage


def cache_type(name: str, written: str) -> str:
    """One of the types that keys and values can be stored in."""
    word = written.strip().lower()
    if word in CACHE_TYPES:
        return word
    near = get_close_matches(word, CACHE_TYPES, n=1)
    known = dict.fromkeys((*near, *CACHE_TYPES))
    raise BadUsage(
        f"unknown cache type {written!r} for {name}.", hint=f"there are: {', '.join(known)}"
    )


def one_sequence(name: str, written: str) -> int:
    """Only 1: one sequence is decoded at a time."""
    if whole(low=1)(name, written) != 1:
        raise BadUsage(
            f"{name} {written} is not supported; one sequence is decoded at a time.",
            hint=f"use {name} 1",
        )
    return 1


class ContextFlags(Group):
    """How much the model can look back on, and how that is stored."""

    panel = "Context and KV cache"

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
            help=f"Cached keys: {' '.join(CACHE_TYPES)}.",
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
            help="Cached values, the same types.",
            metavar="TYPE",
            parse=cache_type,
            env="LLAMA_ARG_CACHE_TYPE_V",
            default="f16",
            choices=CACHE_TYPES,
            common=True,
        ),
    ] = None
    kv_rotate: Annotated[
        str | None,
        flag(
            "--kv-rotate",
            help="Rotate keys and values of the plain quantised types, which lowers their error: "
            "auto (where all heads allow it), on or off. Turbo types always are.",
            metavar="MODE",
            parse=choice(*KV_ROTATIONS),
            default="auto",
            choices=KV_ROTATIONS,
        ),
    ] = None
    kv_protect: Annotated[
        str | None,
        flag(
            "--kv-protect",
            help="Keep in q8_0 what coarse types may spoil: auto (keys in a turbo type that 6 or "
            "more query heads share; the ends' values in turbo2), boundary (values of the first "
            "and last two layers) or none.",
            metavar="MODE",
            parse=choice(*KV_PROTECTIONS),
            default="none",
            choices=KV_PROTECTIONS,
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
    fit: Annotated[
        str | None,
        flag(
            "-fit",
            "--fit",
            help="Cut a context that -c does not set to what fits; off = refuse.",
            metavar="on|off",
            parse=choice("on", "off"),
            env="LLAMA_ARG_FIT",
            default="on",
            choices=("on", "off"),
        ),
    ] = None
    swa_full: Annotated[
        bool,
        flag(
            "--swa-full",
            help="Layers that look through a window remember all positions too.",
            env="LLAMA_ARG_SWA_FULL",
            default="off",
        ),
    ] = False
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
