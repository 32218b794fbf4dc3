"""Search spaces of engine settings, spaces/<engine>.yaml, around the shipped settings. No engine is started."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from harness_llm.config.commands import typed
from harness_llm.config.engine_config import EngineConfig
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml

_SPACES = Path(__file__).with_name("spaces")
_TENSOR_PARALLEL, _REPLICAS = "llm_config.tensor_parallel_size", "harness_config.replicas"
Value = bool | int | float | str | None
Settings = Mapping[str, Value]
"""Settings that differ from the shipped ones, by `section.key`; empty for the shipped settings."""


class Entry(BaseModel):
    """An entry of a file in spaces/, whose head documents the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    restart: bool
    values: tuple[Value, ...] = ()
    times_shipped: tuple[float, ...] = ()
    default: Value = None
    at_least: str = ""
    scenarios: tuple[str, ...] = ()
    accelerator: bool = False
    unless: str = ""


@dataclass(frozen=True)
class Parameter:
    """One searched setting.

    Attributes:
        name: `section.key`.
        values: all values, the shipped one included; ascending if they are numbers.
        at_least: the setting that it may not be below; empty for none.
    """

    name: str
    values: tuple[Value, ...]
    shipped: Value
    restart: bool
    at_least: str = ""

    @property
    def is_ordered(self) -> bool:
        """Whether the values are numbers."""
        return all(isinstance(value, int | float) and not isinstance(value, bool) for value in self.values)


@dataclass(frozen=True)
class SearchSpace:
    """The settings that are searched, in the order of the file.

    Attributes:
        devices: of all replicas together, which every point uses.
        pipeline_parallel: devices of a replica for each unit of tensor_parallel_size.
    """

    parameters: tuple[Parameter, ...]
    devices: int
    pipeline_parallel: int

    @property
    def size(self) -> int:
        """Number of points, the shipped one included."""
        return prod(len(parameter.values) for parameter in self.parameters)

    def point(self, settings: Settings) -> dict[str, Value]:
        """The value of every parameter with `settings`."""
        return {one.name: settings.get(one.name, one.shipped) for one in self.parameters}

    def settings(self, point: Mapping[str, Value]) -> dict[str, Value]:
        """The settings of `point` that differ from the shipped ones; with a replica on each group of devices."""
        found = {one.name: point[one.name] for one in self.parameters if point[one.name] != one.shipped}
        if _TENSOR_PARALLEL in found:
            found[_REPLICAS] = self.devices // (self.pipeline_parallel * _whole(found[_TENSOR_PARALLEL]))
        return found

    def fits(self, point: Mapping[str, Value]) -> bool:
        """Whether no setting of `point` is below the one that bounds it."""
        bounds = [(point[one.name], point.get(one.at_least)) for one in self.parameters]
        return all(bound is None or value is None or _number(value) >= _number(bound) for value, bound in bounds)

    def needs_restart(self, before: Settings, after: Settings) -> bool:
        """Whether an engine with the settings `before` must be started again for the settings `after`."""
        old, new = self.point(before), self.point(after)
        return any(one.restart and old[one.name] != new[one.name] for one in self.parameters)


def load_space(engine: str, config: EngineConfig, scenario: str, *, accelerated: bool) -> SearchSpace:
    """The space of `engine` around the shipped `config` of `scenario`.

    Raises:
        ConfigError: the engine has no space, or it has one point only.
    """
    entries = _load_entries(engine)
    parallel = int(config.llm_config.get("pipeline_parallel_size", 1))
    devices = config.replicas * config.group
    found = [
        _parameter(name, entry, config, devices // parallel)
        for name, entry in entries.items()
        if _applies(entry, config, scenario, accelerated=accelerated)
    ]
    searched = tuple(parameter for parameter in found if len(parameter.values) > 1)
    if not searched:
        raise ConfigError("the search space has no other settings", where=str(_SPACES / f"{engine}.yaml"))
    return SearchSpace(searched, devices, parallel)


def _load_entries(engine: str) -> dict[str, Entry]:
    file = _SPACES / f"{engine}.yaml"
    if not file.is_file():
        raise ConfigError(
            f"the engine {engine} has no search space",
            where=str(file),
            expected=f"one of: {', '.join(sorted(path.stem for path in _SPACES.glob('*.yaml')))}",
            hint=f"{typed(what='target')} searches the target alone",
        )
    return TypeAdapter(dict[str, Entry]).validate_python(read_yaml(file))


def _applies(entry: Entry, config: EngineConfig, scenario: str, *, accelerated: bool) -> bool:
    if entry.scenarios and scenario not in entry.scenarios:
        return False
    if entry.accelerator and not accelerated:
        return False
    return not (entry.unless and shipped_value(config, entry.unless))


def _parameter(name: str, entry: Entry, config: EngineConfig, devices: int) -> Parameter:
    shipped = shipped_value(config, name)
    shipped = entry.default if shipped is None else shipped
    others = [round(_number(shipped) * factor) for factor in entry.times_shipped] if entry.times_shipped else []
    values = list(dict.fromkeys([shipped, *entry.values, *(value for value in others if value)]))
    if name == _TENSOR_PARALLEL:
        values = [value for value in values if devices % _whole(value) == 0]
    parameter = Parameter(name, tuple(values), shipped, entry.restart, entry.at_least)
    return replace(parameter, values=tuple(sorted(values, key=_number))) if parameter.is_ordered else parameter


def shipped_value(config: EngineConfig, name: str) -> Any:
    """The value of `section.key` in `config`; None if it is not set."""
    section, _, key = name.partition(".")
    values = getattr(config, section)
    return values.get(key) if isinstance(values, dict) else getattr(values, key)


def _number(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"no number: {value!r}")
    return value


def _whole(value: Value) -> int:
    return int(_number(value))
