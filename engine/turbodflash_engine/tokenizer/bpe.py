"""Byte-level pair encoding (the gpt2 model): split into words, write bytes as characters, merge."""

from __future__ import annotations

from tokenizers import Regex, pre_tokenizers

from turbodflash_engine.tokenizer.merging import PartEncoder, ranks
from turbodflash_engine.tokenizer.pre import split_of
from turbodflash_engine.tokenizer.vocabulary import Vocabulary


class BytePairEncoder:
    """Encodes raw text. The `tokenizers` library splits it; merging is our own, because the
    library's model takes ten times as long to build as a short prompt takes to encode."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        split = split_of(vocabulary.pre)
        patterns = [pre_tokenizers.Split(Regex(each), "isolated") for each in split.patterns]
        to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        self._splitter = pre_tokenizers.Sequence([*patterns, to_bytes])

        ids, rank_of = vocabulary.ids, ranks(vocabulary.merges).get

        def spell(symbol: str) -> list[int]:
            id = ids.get(symbol)
            if id is not None:
                return [id]
            return [ids[character] for character in symbol if character in ids]

        self._word = PartEncoder(
            cost=lambda left, right: rank_of(f"{left} {right}"),
            spell=spell,
            whole=ids if split.whole_words else {},
        )

    def __call__(self, text: str) -> list[int]:
        word = self._word
        return [id for part, _ in self._splitter.pre_tokenize_str(text) for id in word(part)]
