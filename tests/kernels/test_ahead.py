"""What kernels of the GPU are compiled to, for cards that are not there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from turbodflash_kernels import every_op
from turbodflash_kernels._gpu.ahead import Compiled, compile_op, compilers
from turbodflash_kernels._gpu.machine_code import Code, longest_loop, read, whole

CARDS = (80, 86, 89, 90, 100, 120)
"""Capabilities: every kernel is compiled for each of them, and every launch of a kernel, with other
shapes and formats, for one. All of them for all: examples/gpu_kernels.py.
"""


@pytest.fixture(scope="module")
def compiler() -> Iterator[ProcessPoolExecutor]:
    with compilers(1) as pool:
        yield pool


@pytest.mark.parametrize("capability", CARDS)
@pytest.mark.parametrize("op", every_op())
def test_kernels_fit_the_card(compiler, op, capability):
    """Registers without spills, shared memory, tensor cores in every product, wide loads."""
    share = CARDS.index(capability), len(CARDS)
    kernels = compiler.submit(compile_op, op, capability, share).result()
    assert kernels
    assert not [f"{kernel}: {fault}" for kernel in kernels for fault in of(kernel)]


def of(kernel: Compiled) -> list[str]:
    """What is wrong with a kernel."""
    loads = kernel.loop.loads()
    carried = {width: width * count for width, count in loads.items()}
    wrong = {
        f"{kernel.spills} instructions spill, {kernel.stack} bytes of stack": kernel.spills
        or kernel.stack,
        f"{kernel.shared} bytes shared of {kernel.room}": kernel.shared > kernel.room,
        f"{kernel.scalar_dots} of {kernel.dots} products by no tensor core": kernel.scalar_dots,
        "no instruction of a tensor core": kernel.dots and not kernel.whole.tensor,
        # weights and caches come by 16 bytes; rows of x are few, and come by 8
        f"loads in the loop, by width: {dict(loads)}": kernel.dots
        and (
            min(loads, default=4) < 4
            or 4 * carried.get(16, 0) < sum(carried.values())
            or 2 * (carried.get(16, 0) + carried.get(8, 0)) < sum(carried.values())
        ),
    }
    return [fault for fault, is_so in wrong.items() if is_so]


LOOP = read("""
        /*0100*/                   S2R R0, SR_TID.X ;
        /*0110*/                   LDG.E.128 R4, [R2.64] ;
        /*0120*/                   LDGSTS.E.BYPASS.128 [R7], [R8.64] ;
        /*0130*/              @!P0 LDG.E.U8 R4, [R2.64] ;
        /*0140*/               @P1 BRA 0x120 ;
        /*0150*/                   HMMA.16816.F32 R4, R4, R6, R4 ;
        /*0160*/              @!P2 BRA P3, 0x110 ;
        /*0170*/                   EXIT ;
        /*0180*/                   BRA 0x180;
        /*0190*/                   NOP;
""")


def test_the_longest_loop_is_the_one_that_spans_most():
    loop = longest_loop(LOOP)
    assert loop.slots == 6
    assert loop.loads() == {16: 2, 1: 1}
    assert loop.tensor == 1
    assert longest_loop(LOOP[-3:]) == Code(Counter())
    assert whole(LOOP).slots == len(LOOP) - 1
