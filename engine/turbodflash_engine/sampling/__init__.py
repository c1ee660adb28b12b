"""From logits to a token. Steps are pure, randomness is keyed by position, order is meaning."""

from turbodflash_engine.sampling.defaults import sample_defaults
from turbodflash_engine.sampling.noise import resolve_seed
from turbodflash_engine.sampling.sampler import Sampler, Vocabulary

__all__ = ["Sampler", "Vocabulary", "resolve_seed", "sample_defaults"]
