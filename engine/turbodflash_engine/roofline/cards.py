"""GPUs as data: what their memory, their tensor units and their schedulers can do at best."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from turbodflash_engine.errors import Unknown
from turbodflash_engine.roofline.data import read
from turbodflash_kernels.planar import Format

UNMEASURED = 0.90  # of the data sheet's bandwidth, where nobody has measured a copy
ISSUED = 0.65  # of its issue slots, what a well-filled multiprocessor uses
TENSOR_SHARE = 0.60  # of the tensor units' rate, in passes of many rows


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of card.

    dram_gbs: 1e9 bytes a second by the data sheet; copy_gbs: as measured, None = by nobody.
    tensor_tflops: 16-bit numbers, 32-bit sums. slots_per_byte: instructions that its schedulers
    can issue while a byte comes from memory. slots_per_weight: what unpacking takes, by bits of a
    code.
    """

    name: str
    capability: int
    memory_gib: float
    dram_gbs: float
    copy_gbs: float | None
    tensor_tflops: float
    slots_per_byte: float
    slots_per_weight: dict[str, float]

    @property
    def bandwidth(self) -> float:
        """Bytes a second that a kernel can hope for."""
        return 1e9 * (self.copy_gbs or UNMEASURED * self.dram_gbs)

    @property
    def multiplied(self) -> float:
        """Operations a second of many rows; a multiplication and an addition are two."""
        return 1e12 * TENSOR_SHARE * self.tensor_tflops

    def share(self, format: Format) -> float:
        """Of the bandwidth, what is left for weights that take instructions to unpack."""
        if format.dense:
            return 1.0
        bits = str(max(format.bits, 4))
        needed = self.slots_per_weight[bits] / format.bytes_per_weight()
        return min(1.0, ISSUED * self.slots_per_byte / needed)


@cache
def gpus() -> dict[str, Gpu]:
    """All that are known, by the name that a person writes."""
    return {name: Gpu(**fields) for name, fields in read("cards").items()}


def gpu(name: str) -> Gpu:
    """Raises Unknown, which names the others."""
    word = name.strip().lower().replace(" ", "").replace("-", "")
    if word not in gpus():
        raise Unknown("GPU", name, tuple(gpus()))
    return gpus()[word]
