"""Drafting: tokens are guessed ahead, and verified several in one pass."""

from pathlib import Path
from typing import Annotated

from turbodflash_cli.flags.compute import device_name, layers_on_gpu
from turbodflash_cli.flags.context import cache_type
from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import choice, number, path, rates, spec_types, whole
from turbodflash_engine import CACHE_TYPES, SPEC_TYPES, BadUsage

INJECTIONS = ("auto", "deferred", "immediate")


def width_or_auto(name: str, written: str) -> int:
    """Tokens to verify in a step; -1 stands for auto."""
    if written.strip().lower() in ("auto", "-1"):
        return -1
    try:
        return whole(low=0)(name, written)
    except BadUsage:
        raise BadUsage(f"{name} takes auto or a whole number, not {written!r}.") from None


def injection(name: str, written: str) -> str:
    """When accepted tokens reach the draft; elsewhere 1 is deferred and 0 immediate."""
    word = {"1": "deferred", "0": "immediate"}.get(written.strip(), written)
    return choice(*INJECTIONS)(name, word)


class DraftFlags(Group):
    """Who guesses, how far ahead, and what is done with the guesses. The text never changes."""

    panel = "Speculative decoding"

    draft_model: Annotated[
        Path | None,
        flag(
            "-md",
            "--model-draft",
            "--spec-draft-model",
            help="GGUF file of a draft for the model; its kind is found out.",
            metavar="FILE",
            parse=path,
            env="LLAMA_ARG_SPEC_DRAFT_MODEL",
            common=True,
        ),
    ] = None
    draft_hf_repo: Annotated[
        str | None,
        flag(
            "-hfd",
            "-hfrd",
            "--hf-repo-draft",
            "--spec-draft-hf",
            help="Hugging Face repository of the draft; -md then names a file in it.",
            metavar="USER/MODEL[:QUANT]",
            env="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
        ),
    ] = None
    dflash: Annotated[
        bool, flag("--dflash", help="The draft must be a DFlash draft.", common=True)
    ] = False
    eagle3: Annotated[
        bool, flag("--eagle3", help="The draft must be an EAGLE-3 draft.", common=True)
    ] = False
    spec_type: Annotated[
        tuple[tuple[str, ...], ...],
        flag(
            "--spec-type",
            help="Types of drafting by commas, such as ngram-simple; a wrong one shows them all.",
            metavar="LIST",
            parse=spec_types,
            env="LLAMA_ARG_SPEC_TYPE",
            default="what the draft is",
            choices=("none", *SPEC_TYPES),
            many=True,
            common=True,
        ),
    ] = ()
    spec_default: Annotated[
        bool, flag("--spec-default", help="The same as --spec-type ngram-mod.")
    ] = False
    n_max: Annotated[
        int | None,
        flag(
            "--spec-draft-n-max",
            former=("--draft", "--draft-n", "--draft-max"),
            help="The most tokens drafted in a step.",
            metavar="N",
            parse=whole(low=0),
            env="LLAMA_ARG_SPEC_DRAFT_N_MAX",
            former_env="LLAMA_ARG_DRAFT_MAX",
            default="as trained, the block less one; else 16",
            common=True,
        ),
    ] = None
    n_min: Annotated[
        int | None,
        flag(
            "--spec-draft-n-min",
            former=("--draft-min", "--draft-n-min"),
            help="A shorter draft is thrown away.",
            metavar="N",
            parse=whole(low=0),
            env="LLAMA_ARG_SPEC_DRAFT_N_MIN",
            former_env="LLAMA_ARG_DRAFT_MIN",
            default="0",
        ),
    ] = None
    p_min: Annotated[
        float | None,
        flag(
            "--spec-draft-p-min",
            "--draft-p-min",
            help="A drafter stops where it is less sure than this.",
            metavar="P",
            parse=number(low=0, high=1),
            env="LLAMA_ARG_SPEC_DRAFT_P_MIN",
            default="0",
        ),
    ] = None
    width: Annotated[
        int | None,
        flag(
            "--spec-width",
            help="Guesses verified in a step; auto = what pays, or none.",
            metavar="auto|N",
            parse=width_or_auto,
            default="auto",
            choices=("auto",),
            common=True,
        ),
    ] = None
    fallback: Annotated[
        bool | None,
        flag(
            "--spec-fallback",
            help="Where the draft does not pay, guess from what the text repeats (width auto).",
            off=("--no-spec-fallback",),
            default="on",
        ),
    ] = None
    tree: Annotated[
        int | None,
        flag(
            "--spec-tree",
            help="Verify a tree of so many guesses in place of a chain; 0 = a chain.",
            metavar="N",
            parse=whole(low=0),
            default="0",
        ),
    ] = None
    inject: Annotated[
        str | None,
        flag(
            "--dflash-inject",
            "--dflash-defer-injection",
            help="When accepted tokens reach the draft; changes the speed only.",
            metavar="auto|deferred|immediate",
            parse=injection,
            default="auto",
            choices=INJECTIONS,
        ),
    ] = None
    draft_context: Annotated[
        int | None,
        flag(
            "-cd",
            "--ctx-size-draft",
            "--spec-draft-ctx-size",
            help="Tokens of context of the draft.",
            metavar="N",
            parse=whole(low=0, thousands=True),
            env="LLAMA_ARG_SPEC_DRAFT_N_CTX",
            default="0 = as the model's",
        ),
    ] = None
    draft_threads: Annotated[
        int | None,
        flag(
            "-td",
            "--threads-draft",
            "--spec-draft-threads",
            help="Threads of the draft.",
            metavar="N",
            parse=whole(high=4096),
            default="as --threads",
        ),
    ] = None
    draft_threads_batch: Annotated[
        int | None,
        flag(
            "-tbd",
            "--threads-batch-draft",
            "--spec-draft-threads-batch",
            help="Threads of the draft for prompts.",
            metavar="N",
            parse=whole(high=4096),
            default="as --threads-draft",
        ),
    ] = None
    draft_gpu_layers: Annotated[
        int | None,
        flag(
            "-ngld",
            "--gpu-layers-draft",
            "--n-gpu-layers-draft",
            "--spec-draft-ngl",
            help="0: the draft is on the CPU; any other number: it is on the GPU, whole.",
            metavar="auto|all|N",
            parse=layers_on_gpu,
            env="LLAMA_ARG_N_GPU_LAYERS_DRAFT",
            default="auto = where the model's output layer is",
            choices=("auto", "all", "0"),
        ),
    ] = None
    draft_device: Annotated[
        str | None,
        flag(
            "-devd",
            "--device-draft",
            "--spec-draft-device",
            help="Where the draft is.",
            metavar="NAME",
            parse=device_name,
            env="LLAMA_ARG_SPEC_DRAFT_DEVICE",
            default="auto",
            choices=("auto", "cpu", "gpu", "reference"),
        ),
    ] = None
    draft_cache_type_k: Annotated[
        str | None,
        flag(
            "-ctkd",
            "--cache-type-k-draft",
            "--spec-draft-type-k",
            help="Type of the draft's cached keys.",
            metavar="TYPE",
            parse=cache_type,
            env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
            default="f16",
            choices=CACHE_TYPES,
        ),
    ] = None
    draft_cache_type_v: Annotated[
        str | None,
        flag(
            "-ctvd",
            "--cache-type-v-draft",
            "--spec-draft-type-v",
            help="Type of the draft's cached values.",
            metavar="TYPE",
            parse=cache_type,
            env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
            default="f16",
            choices=CACHE_TYPES,
        ),
    ] = None
    synth_len: Annotated[
        float | None,
        flag(
            "--spec-synth-len",
            help="For measuring: accept by chance, L tokens a step. The text is not real.",
            metavar="L",
            parse=number(low=1),
            env="LLAMA_ARG_SPEC_SYNTH_LEN",
        ),
    ] = None
    synth_rates: Annotated[
        tuple[float, ...] | None,
        flag(
            "--spec-synth-rates",
            help="The same, by the share of steps that accept the first, the second ... token.",
            metavar="P0,P1,...",
            parse=rates,
            env="LLAMA_ARG_SPEC_SYNTH_RATES",
        ),
    ] = None
