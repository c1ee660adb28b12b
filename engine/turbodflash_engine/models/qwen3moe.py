"""qwen3moe: Qwen3-30B-A3B and its like. As qwen3, with a mixture of experts in every layer."""

from __future__ import annotations

from turbodflash_engine.models._dense import Traits, dense

PLUGIN = dense(Traits(pairs="neox", qk_norms=True, experts="must"))
