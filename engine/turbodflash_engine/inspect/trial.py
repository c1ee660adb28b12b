"""What the loader would say of a file, each of its readers asked once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from turbodflash_engine import plugins
from turbodflash_engine.errors import BadModel, TurbodflashError
from turbodflash_engine.gguf import GgufFile
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import ID_TYPES, Layout, Tensors
from turbodflash_engine.pairing import kind_of
from turbodflash_engine.quant import weight_type
from turbodflash_engine.tokenizer.vocabulary import read_vocabulary


class Trial(NamedTuple):
    """windows: of layers with keys of their own, by their numbers; 0 = no window.

    drafts: as what, where the file is no model by itself. problems: a sentence each.
    """

    windows: Mapping[int, int]
    drafts: str
    problems: tuple[str, ...]


class _Form(NamedTuple):
    drafts: str
    config: Any
    layout: Callable[[Any, Container[str]], Layout]


def try_to_read(file: GgufFile) -> Trial:
    """All that the readers ask the metadata for becomes known to be read."""
    problems: list[str] = []
    form = None
    with _told(problems):
        form = _form(file)
    with _told(problems):
        read_vocabulary(file.metadata)
    for kind, tensor in {tensor.type: tensor for tensor in file.tensors.values()}.items():
        with _told(problems):
            if kind not in ID_TYPES:  # the layout says which tensors those are
                weight_type(kind, tensor.name)
    if form is None:
        return Trial({}, "", tuple(problems))
    with _told(problems):
        tensors = Tensors(
            file.tensors,
            str(file.path),
            lambda tensor: weight_type(tensor.type, tensor.name),
            metadata=file.metadata,
        )
        tensors.check(form.layout(form.config, tensors))
    shapes = form.config.kv_shapes
    numbers = range(len(shapes)) if form.drafts else form.config.kv_layers
    windows = {layer: shape.window for layer, shape in zip(numbers, shapes, strict=True)}
    return Trial(windows, form.drafts, tuple(dict.fromkeys(problems)))


@contextmanager
def _told(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except TurbodflashError as error:
        problems.append(str(error))


def _form(file: GgufFile) -> _Form:
    """The file as a model, or as a draft where no model is of its architecture."""
    meta = file.metadata
    if meta.architecture in plugins.names("models"):
        architecture = plugins.find("models", meta.architecture)
        return _Form("", architecture.read(meta, RopeOverrides()), architecture.layout)
    if draft := kind_of(file):
        drafts, kind = draft
        return _Form(drafts, kind.read(meta), kind.layout)
    raise BadModel(f"architecture {meta.architecture!r} is not supported")
