"""What drafting brings: the same answers with and without it, in turns, from one loaded model."""

from turbodflash_engine.speculating.bench import measure_speculation
from turbodflash_engine.speculating.rivals import CONTEXT, Answered, Prompt, Rivals

__all__ = ["CONTEXT", "Answered", "Prompt", "Rivals", "measure_speculation"]
