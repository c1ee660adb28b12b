"""Which instructions the int8 kernels may use."""

from __future__ import annotations

import os

import llvmlite.binding as llvm

from turbodflash_kernels.errors import NoDevice

# name -> CPU features it needs; best first
LEVELS: dict[str, tuple[str, ...]] = {
    "avx512_vnni": ("avx512vnni", "avx512bw", "avx512vl", "fma", "f16c"),
    "avx_vnni": ("avxvnni", "avx2", "fma", "f16c"),
    "avx2": ("avx2", "fma", "f16c"),
    "generic": (),
}


def available() -> list[str]:
    """Levels this machine can run, best first."""
    features = llvm.get_host_cpu_features()
    return [name for name, needs in LEVELS.items() if all(features.get(n) for n in needs)]


def choose() -> str:
    """The best level, or the one that TURBODFLASH_ISA names."""
    asked, can = os.environ.get("TURBODFLASH_ISA", ""), available()
    if not asked:
        return can[0]
    if asked not in can:
        raise NoDevice(
            f"TURBODFLASH_ISA is {asked!r}; this machine can run {', '.join(can)}.",
            hint="unset it, or name one of these.",
        )
    return asked


def prefetches_best_alone() -> bool:
    """Whether one row's weights come sooner if nobody asks for them: AMD's with AVX-512, of which a
    Zen 4 was measured."""
    return choose() == "avx512_vnni" and llvm.get_host_cpu_name().startswith("znver")
