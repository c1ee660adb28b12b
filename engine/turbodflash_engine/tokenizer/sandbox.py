"""A Jinja environment for templates that come out of a model file and are trusted with nothing.

Jinja's immutable sandbox keeps a template from files, from Python's internals and from changing
what it is given. On top of it every loop step, call, filter, operator and container is charged to
a meter, so that a hostile template ends in an error and not in a hang or in gigabytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import wraps
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from turbodflash_engine.tokenizer.meter import TooMuch, meter

_GROWING_FILTERS = {
    "batch",
    "center",
    "format",
    "indent",
    "join",
    "replace",
    "slice",
    "tojson",
    "truncate",
    "wordwrap",
    "xmlattr",
}
_STEP, _MADE, _JOINED = "each step", "made value", "joined text"
"""Filters that no template can name: the charges that are put into its syntax tree."""


class Refused(Exception):
    """The template itself refuses its input, through `raise_exception`."""


class Invalid(Exception):
    """A text is no template; the sentence says why, and in which line."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles chat templates, with the settings and helpers that they expect.

    A template renders only while `meter` is set.
    """

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols"],
            finalize=_made,
            cache_size=0,
        )
        self.filters["tojson"] = _to_json
        self.filters = {name: _metered(name, each) for name, each in self.filters.items()}
        self.filters |= {_STEP: _steps, _MADE: _made, _JOINED: _joined}
        del self.globals["lipsum"]
        self.globals |= {
            "namespace": _OpaqueNamespace,
            "raise_exception": _refuse,
            "strftime_now": lambda format: now().strftime(_short(format)),
        }

    def compiled(self, source: str) -> Template:
        """The template of a Jinja text; Invalid if it is none."""
        try:
            return self.from_string(source)
        except TemplateSyntaxError as error:
            why, line = error.message or "syntax error", f" in line {error.lineno}"
        except Exception as error:  # the compiler of a hostile template may fail in any way
            why, line = reason(error), ""
        raise Invalid(f"the chat template is not valid Jinja{line}: {why}")

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            _charge_steps(loop)
        _charge_values(tree)
        return tree

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        receiver = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if isinstance(receiver, str):
            meter.get().allow_growth(receiver, [*args, *kwargs.values()])
            if "format" in getattr(function, "__name__", ""):
                meter.get().allow_format(receiver)
        return _made(super().call(context, function, *map(_charged_items, args), **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            meter.get().allow_product(left, right)
        elif operator == "**":
            meter.get().allow_power(left, right)
        elif operator == "%" and isinstance(left, str):
            meter.get().allow_format(left)
        return _made(super().call_binop(context, operator, left, right))


class _OpaqueNamespace(Namespace):
    """Namespaces may hold each other; printed in full that could be endless."""

    def __repr__(self) -> str:
        return "<namespace>"


def _charge_steps(loop: nodes.For) -> None:
    if loop.recursive:
        raise TemplateSyntaxError("recursive loops are not supported", loop.lineno)
    step = sum(len(text.data) for text in loop.find_all(nodes.TemplateData))
    loop.iter = _filter(loop.iter, _STEP, [nodes.Const(step)])


def _charge_values(node: nodes.Node) -> None:
    """Charges for containers and joined text wherever they are made, innermost first."""
    for field, value in node.iter_fields():
        if isinstance(value, list):
            value[:] = [_charged(each) if isinstance(each, nodes.Node) else each for each in value]
        elif isinstance(value, nodes.Node):
            setattr(node, field, _charged(value))


def _charged(node: nodes.Node) -> nodes.Node:
    _charge_values(node)
    if isinstance(node, nodes.Concat):
        return _filter(nodes.List(node.nodes, lineno=node.lineno), _JOINED, [])
    if isinstance(node, nodes.List | nodes.Dict):
        return _filter(node, _MADE, [])
    if isinstance(node, nodes.Tuple) and node.ctx == "load":
        return _filter(node, _MADE, [])
    return node


def _filter(value: nodes.Node, name: str, args: list[nodes.Expr]) -> nodes.Filter:
    return nodes.Filter(value, name, args, [], None, None, lineno=value.lineno)


def _steps(items: Iterable[Any], step: int) -> Iterator[Any]:
    for item in items:
        meter.get().charge_step(step)
        yield item


def _made(value: Any) -> Any:
    meter.get().charge_for(value)
    return value


def _joined(parts: list[Any]) -> str:
    return "".join(map(str, _made(parts)))


def _charged_items(value: Any) -> Any:
    """A lazy sequence is charged when somebody takes from it; anything else is as it is."""
    return map(_made, value) if isinstance(value, Iterator) else value


def _metered(name: str, filter: Callable[..., Any]) -> Callable[..., Any]:
    at = 1 if hasattr(filter, "jinja_pass_arg") else 0  # the context or environment comes first

    @wraps(filter)
    def metered(*args: Any, **kwargs: Any) -> Any:
        if name in _GROWING_FILTERS:
            meter.get().allow_growth(args[at], [*args[at + 1 :], *kwargs.values()])
        if name == "format":
            meter.get().allow_format(str(args[at]))
        return _made(filter(*args[:at], *map(_charged_items, args[at:]), **kwargs))

    return metered


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Plain JSON: it is put before a model, not into a web page, so nothing is escaped."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def reason(error: Exception) -> str:
    """What went wrong in a template, in words."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = str(error) or type(error).__name__
    return text if isinstance(error, TemplateError) else f"{type(error).__name__}: {text}"


def _refuse(message: str) -> None:
    raise Refused(message)


def _short(format: str) -> str:
    if len(format) > 256:
        raise TooMuch("it asks for a date in more than 256 characters")
    return format
