"""Count what a cached number costs attention on cards that are not here, ahead of time.

    python examples/gpu_attention_slots.py 90 120

Slots per number of keys and values: instructions of the innermost loop over tiles of keys, times
threads, by the numbers of one turn. Needs no card: torch, Triton and their tools are enough.
"""

from __future__ import annotations

import os
import sys

os.environ.pop("TRITON_INTERPRET", None)  # a process that interprets compiles nothing

from turbodflash_kernels._gpu.ahead import compile_launches
from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels.attend.cases import Case

TYPES = ("f16", "q8_0", "q4_0", "q5_1", "iq4_nl", "turbo4", "turbo3", "turbo2")
ROWS = (4, 16)  # times four query heads for each head of keys
HEAD_DIM, HEADS, KV_HEADS = 128, 32, 8


def main(capabilities: list[int]) -> None:
    print(f"{'type':8} {'rows':>4} {'card':>6} {'slots':>6} {'together':>8} {'registers':>9}")
    for type in TYPES:
        for rows in ROWS:
            for capability in capabilities:
                print(line_of(type, rows, capability), flush=True)


def line_of(type: str, rows: int, capability: int) -> str:
    device, recorder = GpuDevice.compiling(capability)
    case = Case(rows, 64, HEADS, KV_HEADS, HEAD_DIM, type)
    case.bind(device)(case.inputs(rows))
    launch = next(found for found in recorder.launches if found.kernel.fn.__name__ == "split")
    (kernel,) = compile_launches("attend", [launch], capability)
    constants = dict(launch.constants)
    numbers = constants["KEYS"] * (constants["K_DIM"] + constants["V_DIM"])
    slots = kernel.product.slots * 32 * kernel.warps / numbers
    return (
        f"{type:8} {rows * HEADS // KV_HEADS:4} sm_{capability:<3} {slots:6.2f} "
        f"{16 * constants['TILES']:8} {kernel.registers:9}"
    )


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [80, 86, 89, 90, 100, 120])
