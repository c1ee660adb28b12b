"""qwen35moe: Qwen3.5 and 3.6 with a mixture of experts, and one expert that all tokens use."""

from __future__ import annotations

from turbodflash_engine.models._hybrid import hybrid

PLUGIN = hybrid(experts=True)
