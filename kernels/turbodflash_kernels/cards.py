"""The NVIDIA cards of this machine, asked of their driver. Neither torch nor triton is imported."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.util import find_spec
from typing import Any, NamedTuple

from turbodflash_kernels.errors import NoDevice

ON_THE_CPU = "leave out -ngl and -dev, or use -ngl 0, to compute on the CPU"

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
    def lacks(self) -> NoDevice | None:
        """Why kernels cannot run on it; None if they can."""
        if self.capability < OLDEST:
            major, minor = divmod(self.capability, 10)
            return NoDevice(
                f"the {self.name} has compute capability {major}.{minor}; "
                "8.0 is the oldest that is supported",
                hint=ON_THE_CPU,
            )
        for package in PACKAGES:
            if find_spec(package) is None:
                return not_installed(package)
        return None


def not_installed(package: str) -> NoDevice:
    return NoDevice(
        f"a GPU needs the package {package}, which is not installed",
        hint='install it with: pip install "turbodflash[gpu]"',
    )


def check_card(index: int) -> FoundCard:
    """The card of that number. Raises NoDevice unless kernels can run on it."""
    found = cards()
    if not found:
        raise NoDevice("there is no NVIDIA card here that its driver knows of", hint=ON_THE_CPU)
    if index >= len(found):
        raise NoDevice(
            f"there is no card {index}: this machine has {len(found)}, counted from 0",
            hint="turbodflash --list-devices shows them",
        )
    lacks = found[index].lacks
    if lacks:
        raise lacks
    return found[index]


def interpreting() -> bool:
    """Whether Triton is asked to run kernels in its interpreter, for which there is no card."""
    return os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "on", "yes", "y")


def cards() -> tuple[FoundCard, ...]:
    """In the order in which the driver counts them; none where it is absent or fails."""
    try:
        driver = _driver()
        _ask(driver.cuInit, 0)
        count = ctypes.c_int()
        _ask(driver.cuDeviceGetCount, ctypes.byref(count))
        return tuple(_card(driver, index) for index in range(count.value))
    except (OSError, AttributeError):
        return ()


def _driver() -> Any:
    return ctypes.CDLL(_LIBRARY)


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
