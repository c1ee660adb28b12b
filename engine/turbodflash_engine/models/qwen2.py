"""qwen2: Qwen2 and Qwen2.5. Halves rotate; queries, keys and values have biases."""

from __future__ import annotations

from turbodflash_engine.models._dense import Traits, dense

PLUGIN = dense(Traits(pairs="neox"))
