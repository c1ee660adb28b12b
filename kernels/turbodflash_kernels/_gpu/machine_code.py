"""Machine code of kernels for a card: read by the tools that lie in Triton's package."""

from __future__ import annotations

import re
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

TENSOR = re.compile(r"^(UTC\w*MMA|[HIQ]G?MMA|OMMA)")
LOADS = re.compile(r"^(LDG|LDGSTS|UTMALDG|UBLKCP)\b")
WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
BULK = 16  # bytes of a load that the copy engine does by itself: as wide as any

INSTRUCTION = re.compile(
    r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:\{\s*)?(?:@!?U?P[\dT]+\s+)?([A-Z][\w.]*)(.*)"
)
TARGET = re.compile(r"\b0x([0-9a-f]+)\s*;")
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)")

SECTIONS = 40  # where an ELF file says where its sections are described, and at 60 how many
SECTION = struct.Struct("<IIQQQQIIQQ")


class Instruction(NamedTuple):
    """address: of its first byte; target: where a branch goes to, else None."""

    address: int
    name: str
    target: int | None


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


def whole(code: Sequence[Instruction]) -> Code:
    """All of it, without the padding behind the end."""
    return Code(Counter(each.name for each in code if each.name != "NOP"))


def longest_loop(code: Sequence[Instruction]) -> Code:
    """The code between the backward branch that spans most and its target; empty without one."""
    return max(_loops(code), key=lambda loop: loop.slots, default=Code(Counter()))


def product_loop(code: Sequence[Instruction]) -> Code:
    """The shortest loop that multiplies on tensor cores; empty without one."""
    multiplying = (loop for loop in _loops(code) if loop.tensor)
    return min(multiplying, key=lambda loop: loop.slots, default=Code(Counter()))


def _loops(code: Sequence[Instruction]) -> Iterator[Code]:
    """The code between each backward branch and its target."""
    places = {each.address: place for place, each in enumerate(code)}
    for place, each in enumerate(code):
        begin = places.get(each.target, place) if each.target is not None else place
        if begin < place:  # a jump to itself is what code ends with
            yield Code(Counter(between.name for between in code[begin : place + 1]))


def resources(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread, and bytes of its stack."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        usage = USAGE.search(_tool("cuobjdump", "--dump-resource-usage", path))
    assert usage, "cuobjdump says nothing of registers"
    registers, stack = map(int, usage.groups())
    return registers, stack


def disassembled(cubins: Sequence[bytes], capability: int) -> list[list[Instruction]]:
    """The instructions of each.

    All are read as one: nearly all of the time the tool takes is that of its start.
    """
    codes = [_code(cubin) for cubin in cubins]
    # cards from 90 on have instructions that later ones lack
    machine = f"SM{capability}{'a' if capability >= 90 else ''}"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "code"
        path.write_bytes(b"".join(codes))
        instructions = read(_tool("nvdisasm", "--binary", machine, path))
    found: list[list[Instruction]] = []
    end = 0
    for code in codes:
        begin, end = end, end + len(code)
        found.append([each for each in instructions if begin <= each.address < end])
    return found


def read(text: str) -> list[Instruction]:
    """What nvdisasm prints of bare code."""
    found = []
    for line in text.splitlines():
        if match := INSTRUCTION.match(line):
            address, name, operands = match.groups()
            target = TARGET.search(operands) if name.startswith("BRA") else None
            found.append(
                Instruction(int(address, 16), name, int(target[1], 16) if target else None)
            )
    return found


def _code(cubin: bytes) -> bytes:
    """The machine code in an ELF file."""
    (table,) = struct.unpack_from("<Q", cubin, SECTIONS)
    count, names = struct.unpack_from("<HH", cubin, 60)
    sections = [SECTION.unpack_from(cubin, table + SECTION.size * n) for n in range(count)]
    strings = sections[names][4]
    found = b""
    for name, _, _, _, start, size, *_ in sections:
        if cubin.startswith(b".text", strings + name):
            found += cubin[start : start + size]
    return found


def _width(name: str) -> int:
    if name.startswith("U"):
        return BULK
    return next((WIDTHS[part] for part in name.split(".") if part in WIDTHS), 4)


def _tool(name: str, *args: object) -> str:
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    done = subprocess.run([path, *map(str, args)], capture_output=True, text=True, check=True)
    return done.stdout
