"""What a model remembers of the tokens it has seen, one layer of memory per model layer."""

from turbodflash_engine.cache.dense import DenseLayer
from turbodflash_engine.cache.formats import CacheTypes, KVShape, LayerFormat, type_names
from turbodflash_engine.cache.recurrent import RecurrentLayers, state_bytes
from turbodflash_engine.cache.stack import Cache, Layer, Trial
from turbodflash_engine.cache.window import WindowLayer

__all__ = [
    "Cache",
    "CacheTypes",
    "DenseLayer",
    "KVShape",
    "Layer",
    "LayerFormat",
    "RecurrentLayers",
    "Trial",
    "WindowLayer",
    "state_bytes",
    "type_names",
]
