"""The front door of the engine.

Errors, events and options are light and come at once. What needs numpy comes on first touch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from turbodflash_engine.errors import BadModel, BadUsage, DoesNotFit, TurbodflashError, Unknown
from turbodflash_engine.events import (
    Event,
    Finished,
    Progress,
    Speculation,
    Started,
    Text,
    Verified,
)
from turbodflash_engine.options import (
    CACHE_TYPES,
    EVERY_LAYER,
    KV_PROTECTIONS,
    KV_ROTATIONS,
    SAMPLER_LETTERS,
    SAMPLERS,
    SPEC_TYPES,
    LoadOptions,
    SampleOptions,
    SayOptions,
    SpecOptions,
    sampler_name,
)

if TYPE_CHECKING:
    from turbodflash_engine.devices import DeviceInfo, devices_here
    from turbodflash_engine.doctor import Check, Diagnosis, diagnose
    from turbodflash_engine.info import DraftInfo, ModelInfo
    from turbodflash_engine.inspect import Inspection, LayerSummary, inspect_file
    from turbodflash_engine.measuring import measure
    from turbodflash_engine.perplexity import (
        Divergence,
        Estimate,
        Perplexity,
        PerplexityOptions,
        SweepRow,
        measure_perplexity,
        sweep_cache_types,
    )
    from turbodflash_engine.planner import Card, Planned, plan_files
    from turbodflash_engine.roofline import (
        Gpu,
        Predicted,
        PredictedFile,
        Speeds,
        gpu,
        predict_file,
        predict_reference_runs,
    )
    from turbodflash_engine.saving import NotReusable
    from turbodflash_engine.session import Session, open_session
    from turbodflash_engine.speculating import Prompt, measure_speculation

__all__ = [
    "CACHE_TYPES",
    "EVERY_LAYER",
    "KV_PROTECTIONS",
    "KV_ROTATIONS",
    "SAMPLERS",
    "SAMPLER_LETTERS",
    "SPEC_TYPES",
    "BadModel",
    "BadUsage",
    "Card",
    "Check",
    "DeviceInfo",
    "Diagnosis",
    "Divergence",
    "DoesNotFit",
    "DraftInfo",
    "Estimate",
    "Event",
    "Finished",
    "Gpu",
    "Inspection",
    "LayerSummary",
    "LoadOptions",
    "ModelInfo",
    "NotReusable",
    "Perplexity",
    "PerplexityOptions",
    "Planned",
    "Predicted",
    "PredictedFile",
    "Progress",
    "Prompt",
    "SampleOptions",
    "SayOptions",
    "Session",
    "SpecOptions",
    "Speculation",
    "Speeds",
    "Started",
    "SweepRow",
    "Text",
    "TurbodflashError",
    "Unknown",
    "Verified",
    "devices_here",
    "diagnose",
    "gpu",
    "inspect_file",
    "measure",
    "measure_perplexity",
    "measure_speculation",
    "open_session",
    "plan_files",
    "predict_file",
    "predict_reference_runs",
    "sampler_name",
    "sweep_cache_types",
]

_HEAVY = {
    "DeviceInfo": "turbodflash_engine.devices",
    "devices_here": "turbodflash_engine.devices",
    "Check": "turbodflash_engine.doctor",
    "Diagnosis": "turbodflash_engine.doctor",
    "diagnose": "turbodflash_engine.doctor",
    "DraftInfo": "turbodflash_engine.info",
    "Inspection": "turbodflash_engine.inspect",
    "LayerSummary": "turbodflash_engine.inspect",
    "ModelInfo": "turbodflash_engine.info",
    "NotReusable": "turbodflash_engine.saving",
    "Session": "turbodflash_engine.session",
    "open_session": "turbodflash_engine.session",
    "inspect_file": "turbodflash_engine.inspect",
    "measure": "turbodflash_engine.measuring",
    "Divergence": "turbodflash_engine.perplexity",
    "Estimate": "turbodflash_engine.perplexity",
    "Perplexity": "turbodflash_engine.perplexity",
    "PerplexityOptions": "turbodflash_engine.perplexity",
    "SweepRow": "turbodflash_engine.perplexity",
    "measure_perplexity": "turbodflash_engine.perplexity",
    "sweep_cache_types": "turbodflash_engine.perplexity",
    "Card": "turbodflash_engine.planner",
    "Gpu": "turbodflash_engine.roofline",
    "Predicted": "turbodflash_engine.roofline",
    "PredictedFile": "turbodflash_engine.roofline",
    "Speeds": "turbodflash_engine.roofline",
    "gpu": "turbodflash_engine.roofline",
    "predict_file": "turbodflash_engine.roofline",
    "predict_reference_runs": "turbodflash_engine.roofline",
    "Planned": "turbodflash_engine.planner",
    "plan_files": "turbodflash_engine.planner",
    "Prompt": "turbodflash_engine.speculating",
    "measure_speculation": "turbodflash_engine.speculating",
}


def __getattr__(name: str) -> Any:
    if name not in _HEAVY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HEAVY[name]), name)
