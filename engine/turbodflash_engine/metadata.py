"""Typed reading of a model's metadata: what is missing is named, what nobody asked for is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from turbodflash_engine.errors import BadModel

T = TypeVar("T", int, float, bool, str)

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
_HINT = "get the model from another source, or convert it again"
ARCHITECTURE = "general.architecture"


class Metadata:
    """The keys of a model file, or those that begin with a prefix.

    A whole number is accepted where a number is asked for, never the other way round. In lists
    true and false are accepted as 1 and 0, and 1 and 0 as true and false. Every wrong or missing
    key raises BadModel. source: names the file in errors.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        source: str = "model",
        prefix: str = "",
        asked: set[str] | None = None,
    ) -> None:
        self._values, self.source, self.prefix = values, source, prefix
        self._asked: set[str] = set() if asked is None else asked

    @property
    def architecture(self) -> str:
        """What the file says it is, such as "llama"."""
        return self.root.need(ARCHITECTURE, str)

    @property
    def root(self) -> Metadata:
        """All keys, whatever the prefix of this one."""
        return Metadata(self._values, self.source, "", self._asked)

    def under(self, prefix: str) -> Metadata:
        """The keys that begin with `prefix.`, to be asked for without it."""
        return Metadata(self._values, self.source, f"{self.prefix}{prefix}.", self._asked)

    def for_architecture(self, name: str = "") -> Metadata:
        """The keys of one architecture, by default of the one the file names."""
        return self.root.under(name or self.architecture)

    def need(self, key: str, kind: type[T]) -> T:
        """The value of a key that must be there."""
        self._check_present(key)
        return self._typed(key, self._ask(key), kind)

    @overload
    def get(self, key: str, default: T) -> T: ...
    @overload
    def get(self, key: str, default: None, kind: type[T]) -> T | None: ...
    @overload
    def get(self, key: str, default: list[T]) -> list[T]: ...
    @overload
    def get(self, key: str, default: object = None, kind: None = None) -> Any: ...
    def get(self, key: str, default: Any = None, kind: Any = None) -> Any:
        """The value of a key, or `default`; its type must be `kind`, by default that of `default`.

        Arrays become lists. An empty list as the default accepts any kind of elements; None
        accepts anything.
        """
        value = self._ask(key)
        if value is None:
            return default
        if isinstance(default, list):
            return self._list(key, value, type(default[0]) if default else None)
        if kind is None and default is None:
            return _plain(value)
        return self._typed(key, value, kind or type(default))

    def need_list(self, key: str, kind: type[T]) -> list[T]:
        """The array of a key that must be there."""
        self._check_present(key)
        return self._list(key, self._ask(key), kind)

    def need_per_layer(self, key: str, kind: type[T], layers: int) -> list[T]:
        """One value a layer, from an array of that length or from a single value for all."""
        self._check_present(key)
        return self._per_layer(key, self._ask(key), kind, layers)

    def get_per_layer(self, key: str, default: T, layers: int) -> list[T]:
        """As `need_per_layer`; where the key is missing, every layer has the default."""
        value = self._ask(key)
        if value is None:
            return [default] * layers
        return self._per_layer(key, value, type(default), layers)

    def unread(self) -> list[str]:
        """The keys that are there and that nobody has asked for, sorted, with their full names."""
        return sorted(key for key in self._keys() if key not in self._asked)

    def items(self) -> Iterator[tuple[str, Any]]:
        """All keys with their values as the file has them, arrays unconverted; not an asking."""
        return ((key, self._values[key]) for key in self._keys())

    def __contains__(self, key: str) -> bool:
        """Whether the key is there; that is an asking."""
        return self._ask(key) is not None

    def __len__(self) -> int:
        return sum(1 for _ in self._keys())

    def _keys(self) -> Iterator[str]:
        return (key for key in self._values if key.startswith(self.prefix))

    def _ask(self, key: str) -> Any:
        self._asked.add(self.prefix + key)
        return self._values.get(self.prefix + key)

    def _check_present(self, key: str) -> None:
        if self.prefix + key not in self._values:
            raise BadModel(f"'{self.source}' has no metadata key '{self.prefix}{key}'", _HINT)

    def _typed(self, key: str, value: Any, kind: Any) -> Any:
        if isinstance(value, bool) == (kind is bool):
            if isinstance(value, kind):
                return value
            if kind is float and isinstance(value, int):
                return float(value)
        raise self._wrong(key, value, _WORDS[kind])

    def _list(self, key: str, value: Any, kind: Any) -> list[Any]:
        if isinstance(value, str) or not isinstance(value, (Sequence, np.ndarray)):
            raise self._wrong(key, value, "a list")
        elements = _plain(value)
        if kind is None or not elements:
            return elements
        found = type(elements[0])  # an array of a file has one type
        if found is kind:
            return elements
        if found in (int, bool) and kind in (int, float, bool):
            return [kind(element) for element in elements]
        raise self._wrong(key, value, f"a list of which each is {_WORDS[kind]}")

    def _per_layer(self, key: str, value: Any, kind: Any, layers: int) -> list[Any]:
        if isinstance(value, (str, int, float)):
            return [self._typed(key, value, kind)] * layers
        values = self._list(key, value, kind)
        if len(values) != layers:
            raise BadModel(
                f"'{self.source}': metadata key '{self.prefix}{key}' has {len(values)} values, "
                f"expected one for each of {layers} layers",
                _HINT,
            )
        return values

    def _wrong(self, key: str, value: object, expected: str) -> BadModel:
        return BadModel(
            f"'{self.source}': metadata key '{self.prefix}{key}' is {describe(value)}, "
            f"expected {expected}",
            _HINT,
        )


def describe(value: object, most: int = 60) -> str:
    """A value in a few words: text is cut at `most` characters, arrays are counted."""
    if isinstance(value, str):
        return repr(value if len(value) <= most else f"{value[:most]}…")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, np.ndarray):
        return f"a list of {len(value):,} values ({value.dtype.name})"
    if isinstance(value, Sequence):
        return f"a list of {len(value):,} strings"
    return repr(value)


def _plain(value: Any) -> Any:
    """Arrays as lists; everything else as it is."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value
