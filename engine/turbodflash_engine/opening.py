"""The files of a model and its draft, opened and found to be whole, before anything is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from turbodflash_engine import plugins
from turbodflash_engine.errors import BadModel, Unknown
from turbodflash_engine.gguf import GgufFile, open_gguf
from turbodflash_engine.layers.rope import RopeOverrides
from turbodflash_engine.layers.tensors import Info, Tensors
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Architecture, Config
from turbodflash_engine.options import LoadOptions, SpecOptions
from turbodflash_engine.pairing import DraftFile, open_draft, own_draft, own_type
from turbodflash_engine.quant import WeightType, weight_type
from turbodflash_engine.tokenizer.templates import template_source


class Found(NamedTuple):
    """What a model's file holds, whole and of the right shapes."""

    file: GgufFile
    architecture: Architecture
    config: Config
    tensors: Tensors
    template: str


class Files(NamedTuple):
    """A model, and the draft that fits it, if one was asked for."""

    model: Found
    draft: DraftFile | None


def _nobody(file: GgufFile) -> None:
    pass


@contextmanager
def open_files(
    options: LoadOptions,
    opened: Callable[[GgufFile], None] = _nobody,
    loaded: Callable[[int], None] = lambda nbytes: None,
) -> Iterator[Files]:
    """What the options name. Raises BadModel or BadUsage.

    opened: told of each file, the draft's first. loaded: told how many bytes were decoded.
    """
    spec = options.spec or SpecOptions()
    with ExitStack() as files:
        draft = open_draft(spec, loaded)
        if draft:
            files.enter_context(draft.file)
            opened(draft.file)
        file = files.enter_context(open_gguf(options.model))
        opened(file)
        found = _read(file, options, loaded)
        if own := own_type(spec):
            draft = own_draft(file, own, loaded)
        if draft:
            draft.check(file.metadata, found.config, spec)
        if found.tensors.apart_bytes and not own:
            loaded(found.tensors.apart_bytes)  # nobody will read it
        yield Files(found, draft)


def _read(file: GgufFile, options: LoadOptions, loaded: Callable[[int], None]) -> Found:
    architecture = _architecture(file.metadata)
    own_template = file.metadata.get("tokenizer.chat_template", "")
    template = template_source(options.chat_template, own_template)
    config: Config = architecture.read(file.metadata, _rope_overrides(options))
    tensors = Tensors(file.tensors, str(file.path), _type_of, loaded, file.metadata)
    tensors.check(architecture.layout(config, tensors))
    return Found(file, architecture, config, tensors, template)


def _architecture(meta: Metadata) -> Architecture:
    name = meta.architecture
    try:
        found: Architecture = plugins.find("models", name)
    except Unknown:
        raise BadModel(
            f"architecture {name!r} is not supported",
            hint=f"supported are: {', '.join(plugins.names('models'))}",
        ) from None
    return found


def _rope_overrides(options: LoadOptions) -> RopeOverrides:
    return RopeOverrides(
        scaling=options.rope_scaling,
        factor=options.rope_scale,
        freq_base=options.rope_freq_base,
        freq_scale=options.rope_freq_scale,
        original_context=options.yarn_orig_ctx,
    )


def _type_of(info: Info) -> WeightType:
    return weight_type(info.type, info.name)
