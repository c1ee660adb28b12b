"""Threads and devices."""

import re
from typing import Annotated

from turbodflash_cli.flags.flag import Group, flag
from turbodflash_cli.flags.values import whole
from turbodflash_engine import EVERY_LAYER, BadUsage

AUTO_LAYERS = -1
"""Stands for "as many as fit", which is also what holds without the option."""

_CARD = re.compile(r"(?:cuda|gpu):?(\d+)")


def layers_on_gpu(name: str, written: str) -> int:
    """A number of layers; `all`, or `auto`: as many as fit."""
    word = written.strip().lower()
    if word in ("auto", "-1"):
        return AUTO_LAYERS
    if word in ("all", "-2"):
        return EVERY_LAYER
    try:
        return whole(low=0)(name, word)
    except BadUsage:
        raise BadUsage(f"{name} takes auto, all or a whole number, not {written!r}.") from None


def layers_asked_for(given: int | None) -> int | None:
    """As the engine takes it: None = as many as fit."""
    return None if given == AUTO_LAYERS else given


def device_name(name: str, written: str) -> str:
    """One device as the engine spells it; `none` is the CPU, `CUDA1` the second card."""
    word = written.strip().lower()
    if word in ("cpu", "none"):
        return "cpu"
    if word in ("gpu", "cuda"):
        return "gpu"
    if word in ("auto", "reference"):
        return word
    if found := _CARD.fullmatch(word):
        return f"gpu:{int(found[1])}"
    many = ": only one at a time" if "," in word else ""
    raise BadUsage(
        f"{name} takes auto, cpu, gpu, gpu:0 or reference, not {written!r}{many}.",
        hint="turbodflash --list-devices shows what there is",
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
        ),
    ] = None
    gpu_layers: Annotated[
        int | None,
        flag(
            "-ngl",
            "--gpu-layers",
            "--n-gpu-layers",
            help="Layers on the GPU, the output layer counted first.",
            metavar="auto|all|N",
            parse=layers_on_gpu,
            env="LLAMA_ARG_N_GPU_LAYERS",
            default="auto = all that fit",
            choices=("auto", "all", "0"),
            common=True,
        ),
    ] = None
    device: Annotated[
        str | None,
        flag(
            "-dev",
            "--device",
            help="Where those layers are: gpu, of several gpu:0, gpu:1 ...; cpu; or reference: "
            "plain, slow, exact.",
            metavar="NAME",
            parse=device_name,
            env="LLAMA_ARG_DEVICE",
            default="auto",
            choices=("auto", "cpu", "gpu", "reference"),
        ),
    ] = None
    graphs: Annotated[
        bool,
        flag(
            "--graphs",
            help="Passes on the GPU are launched as one.",
            off=("--no-graphs",),
            default="on",
        ),
    ] = True
    warmup: Annotated[
        bool,
        flag(
            "--warmup",
            help="An empty run before the clock starts.",
            off=("--no-warmup",),
            default="on",
        ),
    ] = True
