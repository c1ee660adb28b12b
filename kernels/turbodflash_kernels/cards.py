"""The NVIDIA cards of this machine, asked of their driver. Neither torch nor triton is imported."""

from __future__ import annotations

import ctypes
import sys
from importlib.util import find_spec
from typing import Any, NamedTuple

OLDEST = 80
"""The compute capability, 8.0, from which on tensor cores multiply all that kernels ask for."""

PACKAGES = ("torch", "triton")

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MAJOR, _MINOR = 75, 76  # attributes of a device, as the driver numbers them


class FoundCard(NamedTuple):
    """capability: 90 for compute capability 9.0. nbytes: of its memory."""

    name: str
    capability: int
    nbytes: int

    @property
    def lacks(self) -> str:
        """Why kernels cannot run on it, as a sentence without an end; empty if they can."""
        if self.capability < OLDEST:
            major, minor = divmod(self.capability, 10)
            return (
                f"the {self.name} has compute capability {major}.{minor}; "
                "8.0 is the oldest that is supported"
            )
        return "".join(
            f"a GPU needs the package {name}, which is not installed" for name in missing()[:1]
        )


def missing() -> list[str]:
    """Packages of the extra `gpu` that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def cards() -> tuple[FoundCard, ...]:
    """In the order in which the driver counts them; none where it is absent or fails."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
        _ask(driver.cuInit, 0)
        count = ctypes.c_int()
        _ask(driver.cuDeviceGetCount, ctypes.byref(count))
        return tuple(_card(driver, index) for index in range(count.value))
    except (OSError, AttributeError):
        return ()


def _card(driver: Any, index: int) -> FoundCard:
    device, name, nbytes = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_size_t()
    _ask(driver.cuDeviceGet, ctypes.byref(device), index)
    _ask(driver.cuDeviceGetName, name, len(name), device)
    _ask(driver.cuDeviceTotalMem_v2, ctypes.byref(nbytes), device)
    major, minor = (_attribute(driver, which, device) for which in (_MAJOR, _MINOR))
    return FoundCard(name.value.decode("utf-8", "replace"), 10 * major + minor, nbytes.value)


def _attribute(driver: Any, which: int, device: ctypes.c_int) -> int:
    value = ctypes.c_int()
    _ask(driver.cuDeviceGetAttribute, ctypes.byref(value), which, device)
    return value.value


def _ask(function: Any, *arguments: Any) -> None:
    """The driver answers through pointers and returns 0, or the number of an error."""
    if function(*arguments):
        raise OSError("the driver of the GPU failed")
