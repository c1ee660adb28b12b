"""What a session holds, kept in a file: the text as tokens, and the caches it fills."""

from turbodflash_engine.saving.prompt_cache import Belongs, NotReusable, read_cache, write_cache

__all__ = ["Belongs", "NotReusable", "read_cache", "write_cache"]
