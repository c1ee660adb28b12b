"""What kernels become on cards that are not there: compiled ahead of time, machine code counted.

Works in processes of its own, because a process in which kernels are interpreted compiles none.
Needs no card and no driver, only the tools that lie in Triton's package.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import turbodflash_kernels
from turbodflash_kernels import every_op

if TYPE_CHECKING:
    from turbodflash_kernels._gpu.launching import Recorded

PACKAGE = turbodflash_kernels.__name__

TENSOR = re.compile(r"^(UTC\w*MMA|[HIQ]G?MMA|OMMA)")
LOADS = re.compile(r"^(LDG|LDGSTS|UTMALDG|UBLKCP)\b")
WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
BULK = 16  # bytes of a load that the copy engine does by itself: as wide as any

INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P[\dT]+\s+)?([A-Z][\w.]*)(.*)"
)
LABEL = re.compile(r"^(\.L_\S+):")
TARGET = re.compile(r"`\((\.L_[^)]+)\)")
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")


class Code(NamedTuple):
    """Machine instructions, by name with modifiers, and how many there are of each."""

    counts: Counter[str]

    @property
    def slots(self) -> int:
        """All instructions."""
        return self.counts.total()

    def of(self, *beginnings: str) -> int:
        """How many begin so."""
        return sum(n for name, n in self.counts.items() if name.startswith(beginnings))

    @property
    def tensor(self) -> int:
        """How many are done by tensor cores."""
        return sum(n for name, n in self.counts.items() if TENSOR.match(name))

    def loads(self) -> Counter[int]:
        """Loads from the card's memory: how many there are of each width in bytes."""
        found: Counter[int] = Counter()
        for name, count in self.counts.items():
            if LOADS.match(name):
                found[_width(name)] += count
        return found


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


def compile_op(op: str, capability: int, half: int | None = None) -> list[Compiled]:
    """As `compile_ops`, one op for one card, in this process.

    half: only every second kernel, from this one on; of a single one, that one.
    """
    found = []
    launches = record(op, capability)
    for launch in launches if half is None else launches[half::2] or launches:
        try:
            found.append(compile_one(op, launch, capability))
        except Exception as error:
            raise RuntimeError(f"{op} does not compile for sm_{capability}: {launch}") from error
    return found


def record(op: str, capability: int) -> list[Recorded]:
    """What the cases of an op launch on such a card, save kernels of other ops."""
    from turbodflash_kernels._gpu.device import GpuDevice

    cases = import_module(f"{PACKAGE}.{op}.cases")
    device, recorder = GpuDevice.compiling(capability)
    for case in getattr(cases, "AHEAD", cases.CASES):
        case.bind(device)(case.inputs(case.rows))
    others = {f"{PACKAGE}.{other}.gpu" for other in every_op() if other != op}
    return [launch for launch in recorder.launches if launch.kernel.fn.__module__ not in others]


def compile_one(op: str, launch: Recorded, capability: int) -> Compiled:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from turbodflash_kernels._gpu.device import KNOWN_CARDS

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
    made: Any = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    dots = [line for line in made.asm["ttgir"].splitlines() if re.search(r"\bdot\b|mma", line)]
    dots = [line for line in dots if re.search(r"= (tt\.dot|ttng\.\w*(dot|mma)\w*)\b", line)]
    registers, stack, code = read_cubin(made.asm["cubin"])
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
        Code(Counter(name for name, _ in _instructions(code))),
        longest_loop(code),
        product_loop(code),
    )


def read_cubin(cubin: bytes) -> tuple[int, int, list[str]]:
    """Registers, bytes of stack, and the lines of the code."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = USAGE.search(_tool("cuobjdump", "--dump-resource-usage", path))
        assert usage, "cuobjdump says nothing of registers"
        registers, stack = map(int, usage.groups())
        return registers, stack, _tool("nvdisasm", "-c", path).splitlines()


def longest_loop(code: Sequence[str]) -> Code:
    """The code between the backward branch that spans most and its target; empty without one."""
    return max(_loops(code), key=lambda loop: loop.slots, default=Code(Counter()))


def product_loop(code: Sequence[str]) -> Code:
    """The shortest loop that multiplies on tensor cores; empty without one."""
    multiplying = (loop for loop in _loops(code) if loop.tensor)
    return min(multiplying, key=lambda loop: loop.slots, default=Code(Counter()))


def _loops(code: Sequence[str]) -> Iterator[Code]:
    """The code between each backward branch and its target."""
    labels: dict[str, int] = {}
    names: list[str] = []
    for line in code:
        label, found = LABEL.match(line), INSTRUCTION.match(line)
        if label:
            labels[label[1]] = len(names)
        elif found:
            names.append(found[1])
            target = TARGET.search(found[2])
            # a jump to itself is what code ends with
            begin = labels.get(target[1], len(names)) if target else len(names)
            if found[1].startswith("BRA") and len(names) - begin > 1:
                yield Code(Counter(names[begin:]))


def _instructions(code: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and operands, without the padding behind the end."""
    for line in code:
        found = INSTRUCTION.match(line)
        if found and found[1] != "NOP":
            yield found[1], found[2]


def _width(name: str) -> int:
    if name.startswith("U"):
        return BULK
    return next((WIDTHS[part] for part in name.split(".") if part in WIDTHS), 4)


def _tool(name: str, *args: object) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    done = subprocess.run([path, *map(str, args)], capture_output=True, text=True, check=True)
    return done.stdout
