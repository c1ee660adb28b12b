"""Machine code of kernels: compiled at most once on a machine, then loaded from a file.

Loading needs LLVM but not Numba, which costs a third of a second to import. The cache folder's
name carries a hash of this package's source, of the processor and of the tools' versions.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import llvmlite
import llvmlite.binding as llvm

from turbodflash_kernels._cpu import isa
from turbodflash_kernels._cpu.worker import Job

if TYPE_CHECKING:
    from turbodflash_kernels._cpu.helpers import Helpers, Promise

KEPT_SECONDS = 30 * 24 * 3600

Compiling = Callable[[str], None]


def cache_root() -> Path:
    """Where files that can be made again belong, on this system."""
    if root := os.environ.get("TURBODFLASH_CACHE"):
        return Path(root)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local"))
    elif sys.platform == "darwin":
        base = Path("~/Library/Caches")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    return base.expanduser() / "turbodflash"


class Library:
    """Kernels of one instruction set, by name.

    `compiling` is called with a kernel's name before it is compiled.
    helpers: so many processes compile what is asked for before anything is called, which pays
    where a whole model is built. Until `settle`, addresses may then be those of promises; who
    calls one earlier must `wait` for it.
    """

    def __init__(self, compiling: Compiling | None = None, helpers: int = 0) -> None:
        self.isa = isa.choose()
        self.compiling = compiling
        self._count = helpers if _can_start_python() else 0
        self._helpers: Helpers | None = None
        self._promises: dict[int, Promise] = {}
        self._promised: dict[Hashable, int] = {}
        self._redeeming, self._telling = RLock(), RLock()

    @cached_property
    def folder(self) -> Path:
        """Where this library's machine code is kept: in the cache, else in the system's temp."""
        name = _fingerprint(self.isa)
        temporary = Path(tempfile.gettempdir()) / f"turbodflash-{_user()}"
        for root in (cache_root(), temporary):
            if _is_ours(root / "kernels" / name):
                return root / "kernels" / name
        return cache_root() / "kernels" / name  # not kept: every start compiles

    def address(self, module: str, name: str, *spec: Hashable) -> int:
        """The address of kernel `name` of `turbodflash_kernels.<module>`.

        module.build(name, *spec) must return its Python source function.
        """
        key = (self.isa, module, name, spec)
        if key in _linked:
            return _linked[key]
        if key in self._promised:
            return self._promised[key]
        text = f"{self.isa} {module}.{name}({', '.join(map(repr, spec))})"
        symbol = f"turbodflash_{name}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        job = Job(symbol, module, name, spec)
        if self._count and not (self.folder / f"{symbol}.o").exists():
            self._promised[key] = self._promise(job)
            return self._promised[key]
        _linked[key] = _link(symbol, self._object(job))
        return _linked[key]

    def wait(self, address: int) -> None:
        """Return when what is at this address can be called. Any thread may ask."""
        if promise := self._promises.get(address):
            self._redeem(promise)

    def settle(self) -> None:
        """Wait for all kernels, and have no more promised."""
        self._count = 0
        if self._helpers is None:
            return
        try:
            for promise in self._promises.values():
                self._redeem(promise)
        finally:
            self._helpers.close()
            self._helpers = None

    def function(self, arguments: int, module: str, name: str, *spec: Hashable) -> Any:
        """As `function_at`, by name."""
        return function_at(self.address(module, name, *spec), arguments)

    def _object(self, job: Job, compile: Callable[[Job], bytes] = Job.compile) -> bytes:
        """Object code, as it is kept, or as it comes from `compile`; any thread may ask."""
        path = self.folder / f"{job.symbol}.o"
        try:
            return path.read_bytes()
        except OSError:
            pass
        _forget_old(self.folder)
        if self.compiling:
            with self._telling:
                self.compiling(job.name)
        code = compile(job)
        _write_whole(path, code)
        return code

    def _promise(self, job: Job) -> int:
        from turbodflash_kernels._cpu.helpers import Helpers

        if self._helpers is None:
            self._helpers = Helpers(self._count, self._object)
        promise = _immortal(self._helpers.promise(job))
        symbol = f"{job.symbol}_promised"
        address = _link(symbol, promise.thunk(symbol))
        self._promises[address] = promise
        return address

    def _redeem(self, promise: Promise) -> None:
        promise.finished.wait()
        with self._redeeming:
            if promise.slot.value:
                return
            code = promise.code or self._object(promise.job)
            promise.slot.value = _link(promise.job.symbol, code)


def function_at(address: int, arguments: int) -> Any:
    """A kernel as a callable of int64 arguments; the interpreter lock is released in it."""
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * arguments)(address)


_linked: dict[Hashable, int] = {}
"""Kernel -> address, for the life of the process."""

_numbers = count()


@cache
def _linker() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        codemodel="jitdefault", jit=True
    )
    return _immortal(llvm.create_lljit_compiler(target_machine=machine, use_jit_link=False))


def _link(symbol: str, code: bytes | str) -> int:
    """The address of what is called so in object code, or in IR."""
    builder = llvm.JITLibraryBuilder().add_current_process()
    builder = builder.add_ir(code) if isinstance(code, str) else builder.add_object_img(code)
    name = f"{symbol} {next(_numbers)}"  # a library's name cannot be used again
    tracker = _immortal(builder.export_symbol(symbol).link(_linker(), name))
    return int(tracker[symbol])


def _immortal(thing: Any) -> Any:
    """Never freed: a thread may be inside this machine code while the interpreter shuts down."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def _fingerprint(level: str) -> str:
    """Everything that decides what the machine code is."""
    digest = hashlib.sha256()
    for path in _sources(Path(__file__).parents[1]):
        with open(path, "rb") as file:
            digest.update(file.read())
    features = llvm.get_host_cpu_features().flatten()
    tools = f"{llvmlite.__version__} {platform.machine()} {sys.platform} {sys.version_info[:2]}"
    for text in (llvm.get_host_cpu_name(), features, tools):
        digest.update(text.encode())
    return f"{level}-{digest.hexdigest()[:16]}"


def _sources(package: Path) -> list[str]:
    """The files that kernels are made of. Every start lists them, so it is done with little ado."""
    with os.scandir(package) as entries:
        folders = [entry.path for entry in entries if entry.is_dir()]
    found = [os.path.join(folder, "cpu.py") for folder in folders]
    for folder in (str(package), os.path.join(package, "_cpu")):
        found += [os.path.join(folder, name) for name in os.listdir(folder)]
    return sorted(path for path in found if path.endswith(".py") and os.path.isfile(path))


def _can_start_python() -> bool:
    """Whether there is a program that could compile for this one."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def _is_ours(folder: Path) -> bool:
    """Whether the folder could be made, or is there, and nobody else can put code into it."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        state = folder.lstat()
    except OSError:
        return False
    if not hasattr(os, "getuid"):
        return True
    writable_by_others = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.getuid() and not writable_by_others


def _forget_old(current: Path) -> None:
    """Remove machine code of versions and settings that have not compiled anything for a while."""
    limit = time.time() - KEPT_SECONDS
    for folder in current.parent.glob("*-*"):
        with suppress(OSError):
            if folder != current and folder.stat().st_mtime < limit:
                shutil.rmtree(folder)


def _write_whole(path: Path, data: bytes) -> None:
    """Keep the file if that is possible; readers never see half of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)
    except OSError:
        return  # a read-only home costs a compilation at every start, nothing else
