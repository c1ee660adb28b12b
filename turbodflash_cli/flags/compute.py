"""Threads and devices."""

from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import whole
from turbodflash_engine import BadUsage


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


class ComputeFlags(Group):
    """What computes."""

    panel = "CPU and devices"

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
