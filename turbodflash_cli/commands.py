"""Between typer and the option groups: a command takes whole groups, typer sees single options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from turbodflash_cli.filling import (
    asked_variable,
    from_environment,
    read,
    spelling_of,
    warn_if_overruled,
)
from turbodflash_cli.flags import Flag, Group, flags_of
from turbodflash_cli.help import write_options
from turbodflash_cli.terminal import ClosedPipe, Terminal

Command = Callable[..., Any]


class Invocation(NamedTuple):
    """One run of the program.

    spelled: how the person wrote an option, by its regular spelling.
    """

    terminal: Terminal
    spelled: Mapping[str, str]


def flagged(command: Command) -> Command:
    """Make a function that takes option groups into one that typer can read.

    A parameter typed as a group is filled from its options, one typed `Terminal` with the terminal
    of this run; all others are typer's own.
    """
    hints = get_type_hints(command, include_extras=True)
    hints.pop("return", None)
    groups = {name: hint for name, hint in hints.items() if _is_group(hint)}
    plain = {n: p for n, p in signature(command).parameters.items() if n not in groups}

    @wraps(command)
    def spread(typer_context: typer.Context, **values: Any) -> Any:
        typed = _typed(typer_context)
        filled = {name: _filled(group, values, typed) for name, group in groups.items()}
        values |= filled
        values |= {name: typer_context.obj.terminal for name in plain if hints[name] is Terminal}
        values |= {name: typer_context for name in plain if hints[name] is typer.Context}
        try:
            return command(**values)
        except BrokenPipeError as error:
            raise ClosedPipe("the reader of the output closed it") from error

    typers_own = [
        parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
        for name, parameter in plain.items()
        if hints[name] not in (Terminal, typer.Context)
    ]
    return _signed(spread, tuple(groups.values()), typers_own)


def completed(groups: Sequence[type[Group]], switches: Sequence[str]) -> Command:
    """For shells: a function that does nothing and has the options of these groups, and switches
    that the program answers itself."""

    def options(typer_context: typer.Context, **values: Any) -> None:
        """The main job is done without typer."""

    own = [
        Parameter(
            name.strip("-").replace("-", "_"),
            Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, typer.Option(name)],
        )
        for name in switches
    ]
    return _signed(options, groups, own)


def groups_of(command: Command | None) -> tuple[type[Group], ...]:
    """The option groups of a function that is `flagged`."""
    groups: tuple[type[Group], ...] = getattr(command, "groups", ())
    return groups


def _signed(
    function: Command, groups: Sequence[type[Group]], others: Sequence[Parameter]
) -> Command:
    """Show typer the context, these parameters and the options of the groups."""
    context = Parameter("typer_context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    shown = [context, *others, *(each for group in groups for each in _parameters(group))]
    vars(function)["__signature__"] = Signature(shown)
    vars(function)["groups"] = tuple(groups)
    function.__annotations__ = {each.name: each.annotation for each in shown}
    return function


def _filled(group: type[Group], values: dict[str, Any], typed: Mapping[str, str]) -> Any:
    """A group with its values taken out of all. typer makes lists of tuples and None of nothing."""
    given = {name: values.pop(name) for name, _ in flags_of(group)}
    return group(
        typed={name: typed[name] for name in given if name in typed},
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in given.items()
            if value is not None
        },
    )


def _typed(context: Any) -> dict[str, str]:
    """Field -> spelling of the options that stood on the command line."""
    return {
        option.name: spelling_of(option.flag, context.obj.spelled)
        for option in context.command.get_params(context)
        if isinstance(option, FlagOption)
        and option.flag is not None
        and _source(context, option) == "COMMANDLINE"
    }


def _source(context: Any, option: Any) -> str:
    return str(getattr(context.get_parameter_source(option.name), "name", ""))


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Group)


def _parameters(group: type[Group]) -> Iterator[Parameter]:
    """What typer shall know of a group: spellings and shape; values are read by the flag itself."""
    for name, flag in flags_of(group):
        if flag.many:
            shape: Any = list[str] | None
        else:
            shape = str | None if flag.takes_value else bool | None
        option = typer.Option(
            *flag.names,
            *(f" /{name}" for name in flag.off),  # typer's way to write a spelling for "off"
            envvar=flag.variables or None,
            metavar=flag.metavar or None,
            help=flag.help,
            autocompletion=_completion(flag),
        )
        yield Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=getattr(group, name) or None,
            annotation=Annotated[shape, option],
        )


def _completion(flag: Flag) -> Callable[[], list[str]] | None:
    return (lambda: list(flag.choices)) if flag.choices else None


class FlagOption(TyperOption):
    """An option whose value is read by its flag: errors are sentences, and nothing heavy loads."""

    flag: Flag | None = None

    def process_value(self, ctx: Any, value: Any) -> Any:
        """The typed value; `value` is what was written, or the default."""
        if self.flag is None:
            return self.callback(ctx, self, value) if self.callback else value
        source, name = _source(ctx, self), self.flag.names[0]
        if source == "ENVIRONMENT":
            name = asked_variable(self.flag)
        elif source == "COMMANDLINE":
            name = spelling_of(self.flag, ctx.obj.spelled)
            warn_if_overruled(self.flag, name, ctx.obj.terminal)
        return read(self.flag, name, value)

    def value_from_envvar(self, ctx: Any) -> Any:
        """The variable's value."""
        return None if self.flag is None else from_environment(self.flag)


def _adopted(params: Any, callback: Command | None) -> Any:
    """Let every option be read by its flag; one without a flag, such as `--help`, is a switch."""
    flags = {name: flag for group in groups_of(callback) for name, flag in flags_of(group)}
    for option in params:
        if isinstance(option, TyperOption):
            option.__class__ = FlagOption
            option.flag = flags.get(option.name or "")  # type: ignore[attr-defined]
    return params


class FlagCommand(TyperCommand):
    """A command whose help is written from its groups."""

    def get_params(self, ctx: Any) -> Any:
        """typer's parameters, each read by its flag."""
        return _adopted(super().get_params(ctx), self.callback)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, words, options."""
        self.format_usage(ctx, formatter)
        self.format_help_text(ctx, formatter)
        write_options(formatter, groups_of(self.callback), all_of_them=True)


class FlagGroup(TyperGroup):
    """The program as shells complete it: options of the main job, and commands."""

    def get_params(self, ctx: Any) -> Any:
        """typer's parameters, each read by its flag."""
        return _adopted(super().get_params(ctx), self.callback)
