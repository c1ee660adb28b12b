"""qwen3: the dense models of Qwen3. Heads of queries and keys are normed, halves rotate."""

from __future__ import annotations

from turbodflash_engine.models._dense import Traits, dense

PLUGIN = dense(Traits(pairs="neox", qk_norms=True))
