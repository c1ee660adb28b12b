"""What every kernel is compiled to for cards that are not here, as a table.

    python examples/gpu_kernels.py [90 120] [attend moe]

Of all cards and ops if none is named; per card the most registers a thread takes, and the most
kilobytes a block shares, of all that the ops' cases launch. Ends with 1 if anything spills. Needs
no card: torch and Triton are enough.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from turbodflash_kernels import every_op
from turbodflash_kernels._gpu.ahead import Compiled, compile_ops

CAPABILITIES = (80, 86, 89, 90, 100, 120)


def main(arguments: list[str]) -> int:
    capabilities = [int(word) for word in arguments if word.isdecimal()] or list(CAPABILITIES)
    ops = [word for word in arguments if not word.isdecimal()] or every_op()
    found: dict[tuple[str, str], dict[int, list[Compiled]]] = {}
    for kernel in compile_ops(ops, capabilities):
        name = kernel.launch.partition("(")[0].lstrip("_")
        found.setdefault((kernel.op, name), {}).setdefault(kernel.capability, []).append(kernel)
    print(f"| op | kernel | {' | '.join(f'sm_{c}' for c in capabilities)} |")
    print("|---" * (2 + len(capabilities)) + "|")
    for (op, name), cards in sorted(found.items()):
        cells = (cell(cards.get(capability, [])) for capability in capabilities)
        print(f"| {op} | {name} | {' | '.join(cells)} |")
    kernels = [kernel for cards in found.values() for some in cards.values() for kernel in some]
    spilling = [str(kernel) for kernel in kernels if kernel.spills or kernel.stack]
    print(f"\n{len(kernels)} kernels, {len(spilling)} that spill", *spilling, sep="\n")
    return bool(spilling)


def cell(kernels: Iterable[Compiled]) -> str:
    some = list(kernels)
    if not some:
        return ""
    registers = max(kernel.registers for kernel in some)
    shared = max(kernel.shared for kernel in some) / 1024
    return f"{registers}, {shared:.0f} KB"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
