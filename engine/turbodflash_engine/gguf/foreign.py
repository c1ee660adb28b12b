"""Files that are not GGUF, and what to do with each."""

from __future__ import annotations

from turbodflash_engine.errors import BadModel

_CONVERT = "convert the model to GGUF, or get it as GGUF"
_UNFINISHED = "this is a download that went wrong: download the file itself"

_SIGNS = (  # how such a file starts, what it is, what to do
    (b"PK\x03\x04", "a zip archive, probably a PyTorch checkpoint", _CONVERT),
    (b"\x80\x02", "a Python pickle, probably a PyTorch checkpoint", _CONVERT),
    (b"version https://git-lfs", "a Git LFS pointer", "fetch the file itself: git lfs pull"),
    (b"<!doctype", "a web page", _UNFINISHED),
    (b"<html", "a web page", _UNFINISHED),
    (b"\x1f\x8b", "gzip-compressed", "unpack it first"),
    (b"\xfd7zXZ\0", "xz-compressed", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first"),
    (b"ggml", "in the GGML format that came before GGUF", _CONVERT),
    (b"lmgg", "in the GGML format that came before GGUF", _CONVERT),
    (b"tjgg", "in the GGML format that came before GGUF", _CONVERT),
    (b"FUGG", "a big-endian GGUF file", "get the little-endian file"),
)


def not_gguf(name: str, start: bytes) -> BadModel:
    """The error for a file that begins with `start`."""
    lowered = start.lstrip().lower()
    for sign, what, hint in _SIGNS:
        if start.startswith(sign) or lowered.startswith(sign):
            return BadModel(f"'{name}' is not a GGUF file: it is {what}", hint)
    if start[8:9] == b"{" and start[:8].endswith(b"\0\0\0"):
        return BadModel(f"'{name}' is not a GGUF file: it is a safetensors file", _CONVERT)
    return BadModel(
        f"'{name}' is not a GGUF file: it starts with {_shown(start[:4])}",
        "give a model in GGUF format",
    )


def _shown(start: bytes) -> str:
    text = start.decode("latin-1")
    return f"'{text}'" if text.isascii() and text.isprintable() else start.hex(" ")
