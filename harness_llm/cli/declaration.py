"""Declare a command of the command line: its options come from the fields of `Options`."""

import functools
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperCommand

from harness_llm.config.options import (
    OUTPUT,
    SETTINGS,
    SYSTEM,
    WHAT_TO_RUN,
    Options,
    declared_options,
    option_name,
    split_names,
)

VERBOSE = "HARNESS_LLM_VERBOSE"
"""Set by -v: tracebacks, and all metrics of a run."""
_Register = Callable[[Callable[..., None]], Callable[..., None]]
_ARGUMENTS = "Arguments"
_GROUPS = (_ARGUMENTS, WHAT_TO_RUN, SYSTEM, SETTINGS, OUTPUT)


def option(group: str, help_: str, *names: str) -> Any:
    """An option of one command, shown under the heading `group`."""
    return typer.Option(*names, help=help_, rich_help_panel=group)


AsJson = Annotated[bool, option(OUTPUT, "Print the results as JSON.", "--json")]


class _GroupedHelp(TyperCommand):
    """Shows the options of a command under their headings."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records: dict[str, list[tuple[str, str]]] = {group: [] for group in _GROUPS}
        for parameter in self.get_params(ctx):
            if record := parameter.get_help_record(ctx):
                group = getattr(parameter, "rich_help_panel", None) or (OUTPUT if parameter.is_eager else _ARGUMENTS)
                records[group].append(record)
        for group in filter(records.get, _GROUPS):
            with formatter.section(group):
                formatter.write_dl(records[group])


def plain_command(commands: typer.Typer) -> _Register:
    """Register a command without `Options`."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        # typer shortens the help of a command in the list of commands, but not its short_help.
        return commands.command(cls=_GroupedHelp, short_help=inspect.getdoc(function))(function)

    return register


def options_command(
    commands: typer.Typer, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> _Register:
    """Register a command whose first parameter, `Options`, becomes one command line option for each field.

    Args:
        commands: where it is registered.
        only: the fields, if not all.
        without: fields that the command has no use for.
    """
    fields = [name for name in declared_options() if (only is None or name in only) and name not in without]

    def register(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function).parameters.values()
        arguments = [*_parameters(fields), *(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own)]

        @functools.wraps(function)
        def command(**values: Any) -> None:
            options = _options({name: values.pop(name) for name in fields})
            function(options, **values)

        # typer reads the signature and the annotations.
        command.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
        command.__annotations__ = {argument.name: argument.annotation for argument in arguments}
        return plain_command(commands)(command)

    return register


def _parameters(names: Collection[str]) -> Iterator[inspect.Parameter]:
    """The fields `names` of `Options` as typer's parameters."""
    types = get_type_hints(Options)
    for name, (field, declared) in declared_options().items():
        if name not in names:
            continue
        kind, default, option = types[name], field.default, option_name(name)
        if declared.commas:
            kind, default = str, ""
        elif default == ():
            kind, default = list[str] | None, None
        elif default is True:
            option = f"{option}/--no-{name}"
        info = typer.Option(
            option,
            help=declared.help,
            rich_help_panel=declared.group,
            envvar=declared.always_read or None,
            min=1 if kind == int | None else None,
            show_default=False,
        )
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, info])


def _options(values: dict[str, Any]) -> Options:
    """Options of the arguments that typer has read."""
    for name, (field, declared) in declared_options().items():
        if declared.commas and name in values:
            values[name] = split_names(values[name]) or field.default
    if "set" in values:
        values["set"] = tuple(values["set"] or ())
    options = Options(**values)
    if options.environment:
        from harness_llm.config.environment import unused_variables

        for line in unused_variables(os.environ):
            sys.stderr.write(f"{line}\n")
    return options
