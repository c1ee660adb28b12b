"""Model files: `open_gguf` maps one and checks what it says about itself."""

from turbodflash_engine.gguf.file import GgufFile, TensorInfo, open_gguf

__all__ = ["GgufFile", "TensorInfo", "open_gguf"]
