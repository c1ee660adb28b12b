"""How kernels are launched: at once, or written down to be compiled ahead of time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch

Grid = tuple[int, ...]

POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
}
ALIGNED = 16  # bytes or units: what a pointer or a number may be known to be a multiple of


class Launch(Protocol):
    def __call__(
        self, kernel: Any, grid: Grid, *args: Any, warps: int, stages: int, **constants: Any
    ) -> None: ...


def launch_now(
    kernel: Any, grid: Grid, *args: Any, warps: int, stages: int, **constants: Any
) -> None:
    """Rounding must not move with Triton's version: products and sums are fused only by tl.fma."""
    kernel[grid](*args, **constants, num_warps=warps, num_stages=stages, enable_fp_fusion=False)


def launching_on(index: int) -> Launch:
    """The way to launch on a card that may not be the one torch takes by itself."""

    def launch(
        kernel: Any, grid: Grid, *args: Any, warps: int, stages: int, **constants: Any
    ) -> None:
        with torch.cuda.device(index):
            launch_now(kernel, grid, *args, warps=warps, stages=stages, **constants)

    return launch if index else launch_now


class Recorded(NamedTuple):
    """All that decides what a kernel is compiled to, save the target.

    signature: Triton's type of every parameter, "constexpr" of those in `constants`.
    aligned: indices of the parameters that are known to be multiples of 16.
    """

    kernel: Any
    signature: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Any], ...]
    aligned: tuple[int, ...]
    warps: int
    stages: int

    def __str__(self) -> str:
        types = [kind for _, kind in self.signature if kind != "constexpr"]
        constants = ", ".join(f"{name}={value}" for name, value in self.constants)
        return f"{self.kernel.fn.__name__}({', '.join(types)}; {constants})"


@dataclass
class Recorder:
    """Stands for a card that is not there: launches are written down, nothing is computed."""

    launches: dict[Recorded, Grid] = field(default_factory=dict)

    def __call__(
        self, kernel: Any, grid: Grid, *args: Any, warps: int, stages: int, **constants: Any
    ) -> None:
        names = list(kernel.arg_names)
        given = dict(zip(names, args, strict=False))
        kinds = dict.fromkeys(constants, "constexpr")
        kinds |= {name: kind_of(value) for name, value in given.items()}
        # as a launch specialises: None and the number 1 become constants, save where it may not
        plain = {param.name for param in kernel.params if param.do_not_specialize}
        kinds |= {name: "i32" for name in plain & given.keys() if given[name] == 1}
        fixed = constants | {name: given[name] for name in given if kinds[name] == "constexpr"}
        aligned = tuple(
            index
            for index, name in enumerate(names)
            if name in given and kinds[name] != "constexpr" and name not in plain
            if is_aligned(given[name])
        )
        signature = tuple((name, kinds[name]) for name in names)
        constant = tuple((name, fixed[name]) for name in names if name in fixed)
        self.launches.setdefault(
            Recorded(kernel, signature, constant, aligned, warps, stages), grid
        )


def kind_of(value: Any) -> str:
    """Triton's type of an argument."""
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if value is None or (isinstance(value, int) and value == 1):
        return "constexpr"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def is_aligned(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return (value.storage_offset() * value.element_size()) % ALIGNED == 0
    return isinstance(value, int) and value % ALIGNED == 0
