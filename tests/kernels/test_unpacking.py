"""What a CPU packs straight from the blocks of a file is what it packs from their planar form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from turbodflash_engine import plugins
from turbodflash_kernels._cpu.device import CpuDevice
from turbodflash_kernels._cpu.weight import CpuWeight
from turbodflash_kernels.blocks import Stored
from turbodflash_kernels.op import Part

TYPES = [plugins.find("quant", name) for name in plugins.names("quant")]
DIRECT = [kind for kind in TYPES if kind.blocks or kind.format.dense]
THROUGH_PLANES = {"IQ1_M", "IQ1_S", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ3_S", "IQ3_XXS", "IQ4_XS"}
THROUGH_PLANES |= {"MXFP4", "NVFP4", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"}


def random_rows(kind: Any, rows: int, blocks: int) -> NDArray[np.uint8]:
    """Any bytes at all."""
    rng = np.random.default_rng(kind.type_id)
    return rng.integers(0, 256, (rows, blocks * kind.block_bytes), dtype=np.uint8)


def packed(
    device: CpuDevice,
    kind: Any,
    raws: list[NDArray[np.uint8]],
    direct: bool,
    searched: bool = False,
) -> CpuWeight:
    """The rows as one matrix; `direct` of a part that cannot be decoded in any other way."""

    def part(raw: NDArray[np.uint8]) -> Part:
        def decode(start: int, stop: int) -> Any:
            assert not direct
            return kind.decode(raw[start:stop])

        stored = Stored(kind.blocks, raw, lambda start, stop: took.append((start, stop)))
        return Part(kind.format, len(raw), decode, stored=stored if direct else None)

    took: list[tuple[int, int]] = []
    cols = raws[0].shape[1] // kind.block_bytes * kind.block
    weight: CpuWeight = device.pack([part(raw) for raw in raws], cols, searched)
    device.flush()
    if direct:
        assert sum(stop - start for start, stop in took) == sum(map(len, raws))
    return weight


def test_which_types_go_through_their_planar_form() -> None:
    assert {kind.name for kind in TYPES} == {kind.name for kind in DIRECT} | THROUGH_PLANES


@pytest.mark.parametrize("kind", DIRECT, ids=lambda kind: kind.name)
@pytest.mark.parametrize("rows", [[1], [16], [37], [32, 5]])
@pytest.mark.parametrize("inputs", [256, 1280])
def test_tiles_are_the_same(kind: Any, rows: list[int], inputs: int) -> None:
    device = CpuDevice(2)
    raws = [random_rows(kind, each, inputs // kind.block) for each in rows]
    found, expected = (packed(device, kind, raws, direct) for direct in (True, False))
    for mine, theirs in zip(found.parts, expected.parts, strict=True):
        np.testing.assert_array_equal(mine.tiles, theirs.tiles)


@pytest.mark.parametrize("rows", [[1], [37], [32, 5]])
@pytest.mark.parametrize("inputs", [32, 1280])
def test_both_streams_of_a_head_are_the_same(rows: list[int], inputs: int) -> None:
    kind, device = plugins.find("quant", "q8_0"), CpuDevice(2)
    raws = [random_rows(kind, each, inputs // kind.block) for each in rows]
    found, expected = (packed(device, kind, raws, direct, True) for direct in (True, False))
    (mine,), (theirs,) = found.parts, expected.parts
    assert mine.lower
    assert theirs.lower
    np.testing.assert_array_equal(mine.tiles, theirs.tiles)
    np.testing.assert_array_equal(mine.lower.tiles, theirs.lower.tiles)
    np.testing.assert_array_equal(mine.lower.reaches, theirs.lower.reaches)


def test_many_chunks_go_where_they_belong() -> None:
    kind = plugins.find("quant", "q4_k")
    raws = [random_rows(kind, 5000, 2)]
    device = CpuDevice(2)
    found, expected = (packed(device, kind, raws, direct) for direct in (True, False))
    np.testing.assert_array_equal(found.parts[0].tiles, expected.parts[0].tiles)


def test_what_goes_wrong_is_raised_once_and_the_device_lives_on() -> None:
    def refuse(start: int, stop: int) -> None:
        raise OSError("the disk is gone")

    kind = plugins.find("quant", "q4_1")
    raw = random_rows(kind, 40, 8)
    device = CpuDevice(2)
    device.pack([Part(kind.format, 40, refuse, stored=Stored(kind.blocks, raw, refuse))], 256)
    with pytest.raises(OSError, match="the disk is gone"):
        device.flush()
    device.flush()
    found, expected = (packed(device, kind, [raw], direct) for direct in (True, False))
    np.testing.assert_array_equal(found.parts[0].tiles, expected.parts[0].tiles)
