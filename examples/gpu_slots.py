"""Count what a weight costs on cards that are not here: issued instructions, ahead of time.

    python examples/gpu_slots.py 90 120

Slots per weight: instructions of the innermost loop of a matrix product, times threads, by the
weights of one turn. Needs no card: torch, Triton and their tools are enough.
"""

from __future__ import annotations

import os
import sys

os.environ.pop("TRITON_INTERPRET", None)  # a process that interprets compiles nothing

from turbodflash_kernels._gpu.ahead import compile_launches
from turbodflash_kernels._gpu.device import GpuDevice
from turbodflash_kernels._gpu.launching import Recorded
from turbodflash_kernels.linear.cases import K4, K5, K6, one

FORMATS = (K4, K5, K6, "8-zero128", "4-table", "f16")
ROWS = (1, 32)
WIDTH, INPUTS = 51200, 5120  # gate and up of Qwen3-32B


def main(capabilities: list[int]) -> None:
    print(f"{'format':20} {'rows':>4} {'card':>6} {'slots':>6} {'registers':>9} {'shared':>7}")
    for format in FORMATS:
        for rows in ROWS:
            for capability in capabilities:
                launch = product(format, rows, capability)
                (kernel,) = compile_launches("linear", [launch], capability)
                slots = kernel.loop.slots * 32 * kernel.warps / weights_of_a_turn(launch)
                print(
                    f"{format:20} {rows:4} sm_{capability:<3} {slots:6.2f} "
                    f"{kernel.registers:9} {kernel.shared:7}"
                )


def product(format: str, rows: int, capability: int) -> Recorded:
    """The launch that multiplies; the one before it prepares the activations."""
    device, recorder = GpuDevice.compiling(capability)
    case = one(rows, INPUTS, format, WIDTH, "norm")
    case.bind(device)(case.inputs(rows))
    return list(recorder.launches)[-1]


def weights_of_a_turn(launch: Recorded) -> int:
    constants = dict(launch.constants)
    inputs = constants.get("BK") or constants["UNROLL"] * constants["INPUTS"]
    return constants["BN"] * inputs


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or [80, 86, 89, 90, 100, 120])
