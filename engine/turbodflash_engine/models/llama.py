"""llama: SmolLM2, Llama 2 and 3, Mistral. Pairs rotate as neighbours, frequencies have divisors."""

from __future__ import annotations

from turbodflash_engine.models._dense import Traits, dense

PLUGIN = dense(Traits(pairs="norm", divisors=True))
