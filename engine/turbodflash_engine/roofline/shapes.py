"""What a pass of a model reads and multiplies, whatever its architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ATTENTION_LAUNCHES = 5  # q, k and v; rotate and store; sums over keys; their total; output
DELTA_LAUNCHES = 4  # projections; what rows say; the rule, norm and gate; output
MLP_LAUNCHES = 2  # gate and up; down
EXPERT_LAUNCHES = 4  # route; gate and up; down; sum
END_LAUNCHES = 4  # embedding, head, sampling, counting


@dataclass(frozen=True, slots=True)
class Experts:
    """Of a mixture, all layers together. matrices: numbers of all experts, by weight type."""

    count: int
    used: int
    matrices: Mapping[str, float]

    @property
    def numbers(self) -> float:
        return sum(self.matrices.values())

    def distinct(self, rows: int) -> float:
        """How many a pass reads, when each row chooses for itself."""
        return self.count * (1 - (1 - self.used / self.count) ** rows)


@dataclass(frozen=True, slots=True)
class Attending:
    """`layers` layers that attend. window: positions that they look back on; 0 = all."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0

    def seen(self, depth: int) -> int:
        """Positions that a row at this depth looks back on."""
        return min(depth, self.window) if self.window else depth


@dataclass(frozen=True, slots=True)
class Shape:
    """A model, or a draft.

    matrices: numbers that every pass reads, by weight type; head: of those, the numbers that a
    prompt multiplies only once. looked_up: numbers of which a pass reads a row at most, in the
    head's type. state: bytes of recurrent layers. launches: kernels of a pass.
    """

    name: str
    matrices: Mapping[str, float]
    attending: tuple[Attending, ...]
    launches: int
    head: float = 0.0
    experts: Experts | None = None
    looked_up: float = 0.0
    state: float = 0.0

    @property
    def numbers(self) -> float:
        """In all its matrices."""
        experts = self.experts.numbers if self.experts else 0.0
        return sum(self.matrices.values()) + experts + self.looked_up

    @property
    def active(self) -> float:
        """That one row is multiplied by."""
        experts = self.experts
        used = experts.numbers * experts.used / experts.count if experts else 0.0
        return sum(self.matrices.values()) + used


def together(*amounts: tuple[str, float]) -> dict[str, float]:
    """Numbers by weight type, added up."""
    sums: dict[str, float] = {}
    for type, numbers in amounts:
        sums[type] = sums.get(type, 0.0) + numbers
    return sums
