"""How keys and values are stored: one type a file, found by the file's name.

A type is a codec of blocks of numbers (`_base.KVType`). What a cache stores of a head, padding and
rotation included, is a `HeadFormat`. All of this is plain numpy on the host: the definition that
every device's kernels are held to, and the form in which caches are saved.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path

from turbodflash_kernels.errors import NoKernel
from turbodflash_kernels.kv._base import KVType
from turbodflash_kernels.kv._head import HeadFormat
from turbodflash_kernels.kv._rotation import Rotation

__all__ = ["HeadFormat", "KVType", "Rotation", "head_formats", "kv_type", "kv_types"]


@cache
def kv_types() -> tuple[str, ...]:
    """Names of all types, read from the files alone."""
    files = Path(__file__).parent.glob("[!_]*.py")
    return tuple(sorted(file.stem for file in files))


@cache
def kv_type(name: str) -> KVType:
    """The type of that name; raises NoKernel for a name that no file has."""
    if name not in kv_types():
        raise NoKernel(f"no cache type named {name!r}", hint=f"there are: {', '.join(kv_types())}")
    found: KVType = import_module(f"turbodflash_kernels.kv.{name}").TYPE
    return found


def head_formats(
    type_k: str, type_v: str, head_dim_k: int, head_dim_v: int, rotate: bool = False
) -> tuple[HeadFormat, HeadFormat]:
    """How keys and values of these types are stored.

    rotate: plain quantised types are rotated, so that large channels share their error out. Raises
    NoKernel when heads of that size cannot be.
    """
    return (
        HeadFormat.of_keys(kv_type(type_k), head_dim_k, rotate),
        HeadFormat.of_values(kv_type(type_v), head_dim_v, rotate),
    )
