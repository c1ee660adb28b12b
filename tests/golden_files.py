"""Where golden numbers lie, and how the packed ones are read."""

from __future__ import annotations

import lzma
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
SHARED_GOLDEN = Path(__file__).parents[2] / "shared" / "golden"


def shared_golden(pattern: str) -> list[Path]:
    """Files of the larger data set that match, for parametrising; empty in a bare clone."""
    return sorted(SHARED_GOLDEN.glob(pattern))


def golden_models() -> list[Path]:
    """Packed tiny models, each once: those of the repository, then those of the larger set."""
    own = sorted((GOLDEN / "models").glob("*.gguf.xz"))
    names = {path.name for path in own}
    return own + [path for path in shared_golden("models/*.gguf.xz") if path.name not in names]


def unpacked(packed: Path | str, folder: Path) -> Path:
    """The model of an xz file, unpacked into `folder` once. A name is one of the repository's."""
    path = GOLDEN / "models" / f"{packed}.gguf.xz" if isinstance(packed, str) else packed
    target = folder / path.name.removesuffix(".xz")
    if not target.exists():
        target.write_bytes(lzma.decompress(path.read_bytes()))
    return target
