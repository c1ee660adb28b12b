"""qwen35: the dense models of Qwen3.5 and 3.6. Delta nets, and attention in every fourth layer."""

from __future__ import annotations

from turbodflash_engine.models._hybrid import hybrid

PLUGIN = hybrid(experts=False)
