"""What kernels become on cards that are not there: compiled ahead of time, machine code counted.

Works in processes of its own, because a process in which kernels are interpreted compiles none.
Needs no card and no driver, only the tools that lie in Triton's package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, NamedTuple

import turbodflash_kernels
from turbodflash_kernels import every_op
from turbodflash_kernels._gpu import machine_code
from turbodflash_kernels._gpu.machine_code import Code

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.launching import Recorded

PACKAGE = turbodflash_kernels.__name__


class Compiled(NamedTuple):
    """A kernel's machine code for one card.

    registers: a thread's. stack: bytes of it that lie in memory. shared: bytes a block uses.
    room: bytes a block may use. dots: matrix products in the source; scalar_dots: those of them
    that no tensor core does. whole, loop: all of the code, and its longest loop; product: its
    shortest loop that multiplies on tensor cores.
    """

    op: str
    launch: str
    capability: int
    warps: int
    registers: int
    stack: int
    shared: int
    room: int
    dots: int
    scalar_dots: int
    whole: Code
    loop: Code
    product: Code

    @property
    def spills(self) -> int:
        """Instructions that move registers to memory or back."""
        return self.whole.of("STL", "LDL")

    def __str__(self) -> str:
        return f"{self.op} sm_{self.capability} {self.launch}"


def compile_ops(
    ops: Sequence[str], capabilities: Sequence[int], processes: int = 2
) -> Iterator[Compiled]:
    """Every kernel that the ops' cases launch, once for each card that has it launched.

    The cases are AHEAD of the op's cases.py: shapes of real models. Without it they are CASES.
    """
    jobs = [(op, capability) for op in ops for capability in capabilities]
    with compilers(processes) as pool:
        for found in pool.map(compile_op, *zip(*jobs, strict=True)):
            yield from found


def compilers(processes: int) -> ProcessPoolExecutor:
    """Processes to call `compile_op` in: where Triton interprets, it cannot compile."""
    return ProcessPoolExecutor(processes, get_context("spawn"), _compile_in_earnest)


def _compile_in_earnest() -> None:
    """Called in each process before anything imports Triton."""
    os.environ.pop("TRITON_INTERPRET", None)


def compile_op(op: str, capability: int, share: tuple[int, int] | None = None) -> list[Compiled]:
    """As `compile_ops`, one op for one card, in this process.

    share: (i, n), only what falls to the i-th of n cards, see `dealt`.
    """
    launches = record(op, capability)
    return compile_launches(op, dealt(launches, *share) if share else launches, capability)


def dealt(launches: Sequence[Recorded], i: int, n: int) -> list[Recorded]:
    """Of each kernel every n-th launch from the i-th on, and one at least."""
    of_kernels: dict[object, list[Recorded]] = {}
    for launch in launches:
        of_kernels.setdefault(launch.kernel.fn, []).append(launch)
    return [
        launch for same in of_kernels.values() for launch in same[i::n] or [same[i % len(same)]]
    ]


def record(op: str, capability: int) -> list[Recorded]:
    """What the cases of an op launch on such a card, save kernels of other ops."""
    from turbodflash_kernels._gpu.device import GpuDevice

    cases = import_module(f"{PACKAGE}.{op}.cases")
    device, recorder = GpuDevice.compiling(capability)
    for case in getattr(cases, "AHEAD", cases.CASES):
        case.bind(device)(case.inputs(case.rows))
    others = {f"{PACKAGE}.{other}.gpu" for other in every_op() if other != op}
    return [launch for launch in recorder.launches if launch.kernel.fn.__module__ not in others]


def compile_launches(op: str, launches: Sequence[Recorded], capability: int) -> list[Compiled]:
    """What each of them becomes on such a card, in this process."""
    made = []
    for launch in launches:
        try:
            made.append(_compiled(launch, capability))
        except Exception as error:
            raise RuntimeError(f"{op} does not compile for sm_{capability}: {launch}") from error
    codes = machine_code.disassembled([each.asm["cubin"] for each in made], capability)
    return [
        _examined(op, launch, capability, each, code)
        for launch, each, code in zip(launches, made, codes, strict=True)
    ]


def _compiled(launch: Recorded, capability: int) -> Any:
    """As Triton has it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    places = {name: index for index, (name, _) in enumerate(launch.signature)}
    source = ASTSource(
        launch.kernel,
        dict(launch.signature),
        {(places[name],): value for name, value in launch.constants},
        {(index,): [["tt.divisibility", 16]] for index in launch.aligned},
    )
    options = {
        "num_warps": launch.warps,
        "num_stages": launch.stages,
        "enable_fp_fusion": False,
    }
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def _examined(
    op: str,
    launch: Recorded,
    capability: int,
    made: Any,
    code: Sequence[machine_code.Instruction],
) -> Compiled:
    from turbodflash_kernels._gpu.device import KNOWN_CARDS

    dots = [line for line in made.asm["ttgir"].splitlines() if re.search(r"\bdot\b|mma", line)]
    dots = [line for line in dots if re.search(r"= (tt\.dot|ttng\.\w*(dot|mma)\w*)\b", line)]
    registers, stack = machine_code.resources(made.asm["cubin"])
    return Compiled(
        op,
        str(launch),
        capability,
        launch.warps,
        registers,
        stack,
        made.metadata.shared,
        KNOWN_CARDS[capability].shared,
        len(dots),
        sum("tt.dot" in line and "#mma" not in line for line in dots),
        machine_code.whole(code),
        machine_code.longest_loop(code),
        machine_code.product_loop(code),
    )
