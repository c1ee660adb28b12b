"""Cards are found through their driver, here one that is made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from turbodflash_kernels import cards
from turbodflash_kernels.cards import FoundCard
from turbodflash_kernels.device import open_device
from turbodflash_kernels.errors import NoDevice, NoRoom


class Driver:
    """Answers as the CUDA driver does: through pointers, with 0 for success."""

    def __init__(self, *found: FoundCard, fails: str = "") -> None:
        self._found, self._fails = found, fails

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            if name == self._fails:
                return 100
            getattr(self, f"_{name}", lambda *ignored: None)(*arguments)
            return 0

        return call

    def _cuDeviceGetCount(self, count: Any) -> None:
        count._obj.value = len(self._found)

    def _cuDeviceGet(self, device: Any, index: int) -> None:
        device._obj.value = index

    def _cuDeviceGetName(self, name: Any, room: int, device: Any) -> None:
        name.value = self._found[device.value].name.encode()[: room - 1]

    def _cuDeviceTotalMem_v2(self, nbytes: Any, device: Any) -> None:
        nbytes._obj.value = self._found[device.value].nbytes

    def _cuDeviceGetAttribute(self, value: Any, which: int, device: Any) -> None:
        major, minor = divmod(self._found[device.value].capability, 10)
        value._obj.value = {75: major, 76: minor}[which]


def driven_by(monkeypatch: pytest.MonkeyPatch, driver: Any) -> None:
    def load() -> Any:
        if isinstance(driver, OSError):
            raise driver
        return driver

    monkeypatch.setattr(cards, "_driver", load)


NEW = FoundCard("NVIDIA H200", 90, 150_000_000_000)
OLD = FoundCard("GeForce GTX 1080", 61, 8 << 30)


def test_every_card_is_found_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    driven_by(monkeypatch, Driver(NEW, OLD))
    assert cards.cards() == (NEW, OLD)


@pytest.mark.parametrize(
    "driver",
    [
        OSError("no such library"),
        object(),
        Driver(),
        *(Driver(NEW, fails=name) for name in ("cuInit", "cuDeviceGetCount", "cuDeviceGetName")),
    ],
)
def test_without_a_driver_that_answers_there_are_none(
    driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven_by(monkeypatch, driver)
    assert cards.cards() == ()


def test_what_a_card_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "PACKAGES", ("math",))
    assert NEW.lacks is None
    assert str(OLD.lacks) == (
        "the GeForce GTX 1080 has compute capability 6.1; 8.0 is the oldest that is supported"
    )
    monkeypatch.setattr(cards, "PACKAGES", ("math", "no_such_package"))
    assert str(NEW.lacks) == "a GPU needs the package no_such_package, which is not installed"
    assert NEW.lacks is not None
    assert 'pip install "turbodflash[gpu]"' in NEW.lacks.hint


@pytest.mark.parametrize(
    ("found", "name", "sentence"),
    [
        ((), "gpu", "there is no NVIDIA card here that its driver knows of"),
        ((NEW, NEW), "gpu:2", "there is no card 2: this machine has 2, counted from 0"),
        ((NEW, OLD), "gpu:1", "the GeForce GTX 1080 has compute capability 6.1; 8.0 is the oldest"),
        ((NEW,), "gpu:0", r"torch \S+ cannot use card 0 of this machine"),
    ],
)
def test_a_card_that_is_asked_for_is_there_or_it_is_said_why_not(
    found: tuple[FoundCard, ...], name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driven_by(monkeypatch, Driver(*found))
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("turbodflash_kernels._gpu.device.interpreting", lambda: False)
    with pytest.raises(NoDevice, match=sentence):
        open_device(name)


def test_where_kernels_are_interpreted_no_card_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    driven_by(monkeypatch, OSError())
    device = open_device("gpu", graphs=False)
    assert "interpreted" in device.describe()
    assert device.free_bytes() is None


def test_a_card_that_is_full_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*sizes: Any, **more: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    device = open_device("gpu")
    for name in ("empty", "zeros"):
        monkeypatch.setattr(torch, name, full)
        with pytest.raises(NoRoom, match="the memory of the interpreted is full") as caught:
            getattr(device, name)((1 << 20,), np.float32)
        assert "-ngl" in caught.value.hint
        monkeypatch.undo()
