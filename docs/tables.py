"""Markdown tables, and those of the fields of pydantic models."""

import inspect
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml
from pydantic import BaseModel

_TYPES = {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "Any": "any"}
_NONE: Mapping[str, Any] = types.MappingProxyType({})


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(map(_escaped, line))} |\n" for line in lines)


def _escaped(cell: str) -> str:
    """Return `cell` with the characters escaped that Markdown reads outside of code; `|` ends a cell anywhere."""
    parts = cell.replace("|", r"\|").split("`")
    return "`".join(re.sub(r"([<*])", r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(parts))


def _type(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_type(each) for each in arguments if each is not types.NoneType)
    if origin in (tuple, dict):
        return f"list of {_type(arguments[0])}" if origin is tuple else f"mapping to {_type(arguments[1])}"
    name = getattr(annotation, "__name__", "any")
    return _TYPES.get(name, name)


def yaml_text(value: object) -> str:
    """Return `value` as YAML on one line, as code."""
    plain = list(value) if isinstance(value, tuple) else value
    return f"`{yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix('...' + chr(10)).strip()}`"


def attributes(model: type[BaseModel]) -> dict[str, str]:
    """Return the descriptions of the section `Attributes:` of a docstring."""
    section = inspect.cleandoc(model.__doc__ or "").partition("Attributes:\n")[2].split("\n\n")[0]
    entries = re.findall(r"^ {4}(\w+): (.+(?:\n {8}.+)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _fields(model: type[BaseModel], defaults: Mapping[str, Any] = _NONE) -> str:
    """Return the table of the fields of `model`; `defaults` are those of a file."""
    described, rows = attributes(model), []
    for name, field in model.model_fields.items():
        default = defaults.get(name, field.default)
        shown = (
            "required"
            if field.is_required() and name not in defaults
            else yaml_text(default) * (default not in ("", None))
        )
        rows.append(
            (f"`{field.alias or name}`", _type(field.annotation), shown, field.description or described.get(name, ""))
        )
    return table(["key", "value", "default", "meaning"], rows)


def sections(models: Mapping[str, Any], defaults: Mapping[str, Any] = _NONE) -> str:
    """Return a table per model, after the first words of its docstring."""
    summaries = {name: " ".join((m.__doc__ or "").partition("Attributes:")[0].split()) for name, m in models.items()}
    return "\n".join(f"`{n}`: {summaries[n]}\n\n{_fields(model, defaults.get(n, {}))}" for n, model in models.items())
