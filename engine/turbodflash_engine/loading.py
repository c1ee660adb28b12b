"""From a file to a model that answers: read, plan, load, warm up."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from turbodflash_engine.cache import CacheTypes, type_names
from turbodflash_engine.decode.warming import warm_up
from turbodflash_engine.devices import Choice, Devices, choose, room_of, wish_of
from turbodflash_engine.drafters._base import Drafter, NoDrafter
from turbodflash_engine.errors import BadModel, BadUsage
from turbodflash_engine.events import Progress
from turbodflash_engine.gguf import GgufFile
from turbodflash_engine.info import FILE_TYPES, ModelInfo
from turbodflash_engine.memory import Plan, plan_memory
from turbodflash_engine.metadata import Metadata
from turbodflash_engine.models._base import Config, Model
from turbodflash_engine.models._placement import Placement
from turbodflash_engine.opening import Files, Found, open_files
from turbodflash_engine.options import LoadOptions, SpecOptions
from turbodflash_engine.pairing import (
    DraftFile,
    draft_context,
    draft_info,
    draft_plan,
    fallback,
    one_of,
    rules,
)
from turbodflash_engine.sampling.defaults import sample_defaults
from turbodflash_engine.sizing import cache_plan, cheaper_caches, needs_of, work_of
from turbodflash_kernels.device import Device
from turbodflash_kernels.errors import NoKernel, NoRoom

if TYPE_CHECKING:
    from turbodflash_engine.tokenizer import Tokenizer
    from turbodflash_engine.tokenizer.chat import ChatTemplate

Report = Callable[[Progress], None]


class Loaded(NamedTuple):
    """All that a session needs.

    device: of the model's head. drafts_on: where a draft computes. drafter: None = plain decoding.
    """

    model: Model
    tokenizer: Tokenizer
    template: ChatTemplate
    info: ModelInfo
    device: Device
    drafts_on: Device
    drafter: Drafter | None = None


def load(options: LoadOptions, progress: Report | None = None) -> Loaded:
    """Load what the options name.

    Raises BadModel, BadUsage or DoesNotFit, before weights are read wherever that can be known.
    `progress` is called from several threads, one at a time.
    """
    report = progress or (lambda event: None)
    meter = _Meter(report)
    with open_files(options, meter.expect, meter.add) as files:
        loaded = _loaded(files, options, Devices(options, _Compiling(report)))
    if options.warmup:
        speech, drafter = loaded.tokenizer, loaded.drafter or NoDrafter()
        warm_up(loaded.model, drafter, max(speech.bos_id, 0), speech.vocab_size)
    return loaded


def _loaded(files: Files, options: LoadOptions, devices: Devices) -> Loaded:
    """A card that nobody asked for and that cannot do it is left alone, with a note."""
    choice = choose(options, devices)
    try:
        return _build(*files, options, devices, choice)
    except (NoKernel, NoRoom) as error:
        if not choice.unasked:
            raise
        why = str(error).splitlines()[0].rstrip(":")
    loaded = _build(*files, options, devices, choice._replace(card=None))
    notes = (f"the CPU computes, not the GPU: {why}", *loaded.info.notes)
    return loaded._replace(info=loaded.info._replace(notes=notes))


def _build(
    found: Found,
    draft: DraftFile | None,
    options: LoadOptions,
    devices: Devices,
    choice: Choice,
) -> Loaded:
    spec = options.spec or SpecOptions()
    _check_shifts(options, found, draft)
    plan = _plan(found, draft, options, choice, devices)
    placement = _placement(choice, plan, found.config.layers, devices)
    drafts_on = choice.draft or placement.head
    cache = cache_plan(options, plan.context)
    model = found.architecture.build(found.config, found.tensors, placement, cache)
    drafters, last, types = rules(spec), None, CacheTypes.of_draft(options)
    if draft:
        _check_contexts(options, draft_context(spec, plan.context), plan.context)
        own = draft_plan(options, plan.context)
        drafters.append(draft.build(drafts_on, model.shared, own, spec))
        last = fallback(spec, drafters[-1].longest)
    drafter = one_of(drafters, last)
    tokenizer, template = _speech(found.file.metadata, found.template)  # while weights are packed
    devices.flush()
    _check_vocabulary(found.file, tokenizer, model)
    info = _info(options, found.file, found.config, plan, placement)
    info = info._replace(token=work_of(found, placement.head))
    if drafter:
        told = draft_info(drafters, last, draft, spec, plan.draft, plan.context)
        info = info._replace(draft=told)
    info = info._replace(notes=info.notes + _of_apart(found, draft))
    if draft:
        notes = draft.notes(model.shared) + _of_draft(types, draft)
        info = info._replace(notes=info.notes + notes)
    return Loaded(model, tokenizer, template, info, placement.head, drafts_on, drafter)


def _plan(
    found: Found,
    draft: DraftFile | None,
    options: LoadOptions,
    choice: Choice,
    devices: Devices,
) -> Plan:
    """Raises DoesNotFit."""
    device = choice.main(devices)
    files, wish = Files(found, draft), wish_of(options, choice, found.config.context)
    load, cheaper = needs_of(files, options, device), cheaper_caches(files, options, device)
    return plan_memory(load, wish, room_of(choice), cheaper)


def _placement(choice: Choice, plan: Plan, layers: int, devices: Devices) -> Placement:
    if choice.card is None:
        return Placement.on(devices.host, layers)
    on_card = plan.split.layers if choice.layers is None else choice.layers
    host = choice.card if on_card > layers else devices.host
    return Placement.split(host, choice.card, layers, on_card)


def _check_shifts(options: LoadOptions, found: Found, draft: DraftFile | None) -> None:
    """Of what a recurrent layer was told, no part can leave it."""
    files = {"model": found.config, **({"draft": draft.config} if draft else {})}
    for what, config in files.items():
        if options.context_shift and config.state_bytes:
            raise BadUsage(
                f"the {what} has {len(config.state_bytes)} recurrent layers, which cannot forget "
                "the beginning of a text, so its context cannot shift",
                hint="leave out --context-shift, and use a context that is large enough",
            )


def _check_contexts(options: LoadOptions, own: int, context: int) -> None:
    """A draft that saw less than the model has nothing to put where the gap closes."""
    if options.context_shift and own < context:
        raise BadUsage(
            f"the draft's context is {own}, the model's {context}; where the context shifts, "
            "a draft must see all of it",
            hint="leave out -cd or --context-shift",
        )


def _of_apart(found: Found, draft: DraftFile | None) -> tuple[str, ...]:
    """What is to be said of what the file holds beside the model."""
    if not found.tensors.apart_bytes or (draft and draft.within):
        return ()
    return (
        "the file has a block that predicts tokens further ahead, which is left out; "
        "--spec-type draft-mtp drafts with it",
    )


def _of_draft(types: CacheTypes, draft: DraftFile) -> tuple[str, ...]:
    """What is to be said of its cache."""
    return tuple(f"draft: {note}" for note in types.notes(draft.config.kv_shapes))


def _speech(meta: Metadata, template: str) -> tuple[Tokenizer, ChatTemplate]:
    from turbodflash_engine.tokenizer import load_tokenizer
    from turbodflash_engine.tokenizer.chat import ChatTemplate

    tokenizer = load_tokenizer(meta)
    return tokenizer, ChatTemplate(template, tokenizer)


def _check_vocabulary(file: GgufFile, tokenizer: Tokenizer, model: Model) -> None:
    if tokenizer.vocab_size > model.vocabulary:
        raise BadModel(
            f"'{file.path}' has {tokenizer.vocab_size:,} tokens but logits for "
            f"{model.vocabulary:,} only",
            hint="get the model from another source, or convert it again",
        )


def _info(
    options: LoadOptions, file: GgufFile, config: Config, plan: Plan, placement: Placement
) -> ModelInfo:
    meta = file.metadata
    defaults, keys = sample_defaults(meta)
    types = CacheTypes.of_model(options)
    formats = types.of_layers(config.kv_shapes)
    type_k, type_v = type_names(formats)
    return ModelInfo(
        name=meta.get("general.name", options.model.stem),
        path=options.model,
        architecture=meta.architecture,
        file_type=_file_type(file),
        file_bytes=file.nbytes,
        parameters=sum(info.elements for info in file.tensors.values()),
        layers=config.layers,
        context=plan.context,
        trained_context=config.context,
        device=placement.describe(),
        cache_type_k=type_k,
        cache_type_v=type_v,
        cache_rotated=any(format.rotated for format in formats),
        cache_row_bytes=sum(format.nbytes for format in formats),
        has_template="tokenizer.chat_template" in meta,
        sample_defaults=defaults,
        sample_keys=keys,
        memory=plan.memory,
        notes=plan.notes + types.notes(config.kv_shapes),
    )


def _file_type(file: GgufFile) -> str:
    """The mix of weight types by its name, or the type that most bytes are in."""
    known = FILE_TYPES.get(file.metadata.get("general.file_type", -1))
    if known:
        return known
    nbytes: dict[str, int] = {}
    for info in file.tensors.values():
        nbytes[info.type] = nbytes.get(info.type, 0) + info.nbytes
    return max(nbytes, key=lambda name: nbytes[name])


class _Meter:
    """Counts bytes of the files and reports each hundredth, and the end."""

    def __init__(self, report: Report) -> None:
        self._report, self._total, self._lock = report, 0, Lock()
        self._done = 0
        self._next = 0

    def expect(self, file: GgufFile) -> None:
        self._total += sum(info.nbytes for info in file.tensors.values())

    def add(self, nbytes: int) -> None:
        with self._lock:
            if self._done == self._total:
                return  # what is left is read a second time
            self._done = min(self._done + nbytes, self._total)
            if self._done >= min(self._next, self._total):
                self._next = self._done + self._total // 100
                self._report(Progress("loading", self._done, self._total, "bytes"))


class _Compiling:
    """Counts kernels as they are compiled, which happens once on a machine."""

    def __init__(self, report: Report) -> None:
        self._report, self._count = report, 0

    def __call__(self, kernel: str) -> None:
        self._count += 1
        self._report(Progress("compiling", self._count, 0, "kernels"))
