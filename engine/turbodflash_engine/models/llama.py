"""llama: SmolLM2, Llama 2 and 3, Mistral, Mixtral.

Pairs rotate as neighbours, frequencies have divisors, layers may be mixtures of experts.
"""

from __future__ import annotations

from turbodflash_engine.models._dense import Traits, dense

PLUGIN = dense(Traits(pairs="norm", divisors=True, experts="may"))
