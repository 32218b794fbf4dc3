"""Names and valid values of vLLM's engine arguments, and names of its environment variables. vLLM is not imported."""

import ast
import functools
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Schema = tuple[Mapping[str, Any], ...]
"""Alternatives of which one must match: a JSON schema's type, limits and enum. Empty: any value."""

_FILE = Path(__file__).with_name("vllm_arguments.json")  # written by describe_arguments.py
_TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "null": (type(None),),
}
_TYPE_NAMES = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "a text",
    "null": "null",
}


def engine_arguments() -> frozenset[str]:
    """The argument names of the installed vLLM; those of the pinned version if none is installed."""
    return _installed_arguments() or frozenset(_schemas())


def expected_value(name: str, value: object) -> str:
    """The values that vLLM accepts for the argument `name`, as text; empty if it accepts `value`.

    Only vLLM checks limits that depend on other arguments or on the model.
    """
    schema = _schemas().get(name, ())
    if not schema or any(_matches(value, kind) for kind in schema):
        return ""
    return " or ".join(map(_describe, schema))


@functools.cache
def engine_variables() -> frozenset[str]:
    """The environment variables that the installed vLLM reads; empty if none is installed."""
    source = _installed_source("envs.py")
    return frozenset(re.findall(r'"(VLLM_\w+)"', source))


@functools.cache
def _schemas() -> Mapping[str, Schema]:
    content = json.loads(_FILE.read_text())
    return {name: tuple(kinds) for name, kinds in content["arguments"].items()}


@functools.cache
def _installed_arguments() -> frozenset[str]:
    tree = ast.parse(_installed_source("engine/arg_utils.py"))
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "EngineArgs")
    return frozenset(
        field.target.id
        for node in classes
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )


def _installed_source(file: str) -> str:
    """The source of a module of vLLM, because its import takes seconds; empty if vLLM is not installed."""
    spec = importlib.util.find_spec("vllm")
    return "" if spec is None or spec.origin is None else (Path(spec.origin).parent / file).read_text()


def _matches(value: object, kind: Mapping[str, Any]) -> bool:
    if not isinstance(value, _TYPES[kind["type"]]) or (isinstance(value, bool) and kind["type"] != "boolean"):
        return False
    if "enum" in kind:
        return value in kind["enum"]
    if isinstance(value, int | float):
        return (
            kind.get("minimum", value) <= value <= kind.get("maximum", value)
            and not value <= kind.get("exclusiveMinimum", value - 1)
            and not value >= kind.get("exclusiveMaximum", value + 1)
        )
    return True


def _describe(kind: Mapping[str, Any]) -> str:
    if "enum" in kind:
        return "one of " + ", ".join(map(str, kind["enum"]))
    limits = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
    found = [f"{sign} {kind[key]}" for key, sign in limits.items() if key in kind]
    return " ".join([_TYPE_NAMES[kind["type"]], " and ".join(found)]).strip()
