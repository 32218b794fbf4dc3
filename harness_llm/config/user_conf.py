"""user.conf: LoadGen's targets, lines of the form `model.scenario.key = value`.

LoadGen ignores invalid lines without a message, so they are errors here (grammar, keys, order of lookup:
loadgen/test_settings_internal.cc:508-814). Scenarios are LoadGen's: Interactive is Server of the model
`<name>-interactive`.
"""

import difflib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from harness_llm.errors import ConfigError

Number = int | float
ANY = "*"


class Kind(StrEnum):
    """The type of a value; LoadGen reads the integer 6 from `6e5`."""

    FLAG = "0 or 1"
    INTEGER = "a whole number from 0 to 2147483647, in plain digits"
    NUMBER = "a number above 0"


@dataclass(frozen=True)
class Key:
    """One key: the field of TestSettings that it sets, times `factor`, and whether only open allows it."""

    kind: Kind
    attribute: str
    factor: float = 1
    open_only: bool = False


_NS_PER_MS = 1_000_000
_SHARE = 0.01  # LoadGen stores percentiles as fractions

_EVERYWHERE = {
    "use_token_latencies": Key(Kind.FLAG, "use_token_latencies", open_only=True),
    "infer_token_latencies": Key(Kind.FLAG, "infer_token_latencies", open_only=True),
    "token_latency_scaling_factor": Key(Kind.INTEGER, "token_latency_scaling_factor", open_only=True),
    "sample_concatenate_permutation": Key(Kind.FLAG, "sample_concatenate_permutation"),
    "min_duration": Key(Kind.INTEGER, "min_duration_ms"),
    "max_duration": Key(Kind.INTEGER, "max_duration_ms", open_only=True),
    "min_query_count": Key(Kind.INTEGER, "min_query_count"),
    "max_query_count": Key(Kind.INTEGER, "max_query_count", open_only=True),
    "performance_sample_count_override": Key(Kind.INTEGER, "performance_sample_count_override"),
    "accuracy_sample_count_override": Key(Kind.INTEGER, "accuracy_sample_count_override"),
    "print_timestamps": Key(Kind.FLAG, "print_timestamps"),
}

KEYS: dict[str, dict[str, Key]] = {
    "Offline": _EVERYWHERE | {"target_qps": Key(Kind.NUMBER, "offline_expected_qps")},
    "Server": _EVERYWHERE
    | {
        "target_qps": Key(Kind.NUMBER, "server_target_qps"),
        "target_latency": Key(Kind.INTEGER, "server_target_latency_ns", _NS_PER_MS, open_only=True),
        "target_latency_percentile": Key(Kind.NUMBER, "server_target_latency_percentile", _SHARE, open_only=True),
        "ttft_latency": Key(Kind.INTEGER, "ttft_latency", _NS_PER_MS, open_only=True),
        "tpot_latency": Key(Kind.INTEGER, "tpot_latency", _NS_PER_MS, open_only=True),
        "coalesce_queries": Key(Kind.FLAG, "server_coalesce_queries"),
        "max_async_queries": Key(Kind.INTEGER, "server_max_async_queries"),
    },
    "SingleStream": _EVERYWHERE
    | {
        "target_latency": Key(Kind.NUMBER, "single_stream_expected_latency_ns", _NS_PER_MS),
        "target_latency_percentile": Key(
            Kind.NUMBER, "single_stream_target_latency_percentile", _SHARE, open_only=True
        ),
    },
    "MultiStream": _EVERYWHERE
    | {
        "target_latency": Key(Kind.NUMBER, "multi_stream_expected_latency_ns", _NS_PER_MS),
        "target_latency_percentile": Key(Kind.NUMBER, "multi_stream_target_latency_percentile", _SHARE, open_only=True),
        "samples_per_query": Key(Kind.INTEGER, "multi_stream_samples_per_query", open_only=True),
    },
}
"""The keys of each scenario. Times are in milliseconds."""

OPEN_ONLY_KEYS: dict[str, frozenset[str]] = {
    scenario: frozenset(name for name, key in keys.items() if key.open_only) for scenario, keys in KEYS.items()
}
"""Per scenario, the keys that only the open division allows."""

TIMING = frozenset(
    {
        *("target_qps", "target_latency", "target_latency_percentile", "ttft_latency", "tpot_latency"),
        *("min_duration", "max_duration"),
        *("coalesce_queries", "max_async_queries", "print_timestamps"),
    }
)
"""Targets, latency limits, durations, and how queries are issued and logged: they affect performance runs only."""

_EMBEDDED = "LoadGen reads it only from its embedded mlperf.conf"
_AUDIT = "a compliance test sets it, in audit.config"
_REFUSED = {
    "mode": "the test sets it",
    "qsl_rng_seed": _EMBEDDED,
    "sample_index_rng_seed": _EMBEDDED,
    "schedule_rng_seed": _EMBEDDED,
    "accuracy_log_probability": _EMBEDDED,
    "test05": _EMBEDDED,
    "test05_qsl_rng_seed": _EMBEDDED,
    "test05_sample_index_rng_seed": _EMBEDDED,
    "test05_schedule_rng_seed": _EMBEDDED,
    "accuracy_log_rng_seed": _AUDIT,
    "accuracy_log_sampling_target": _AUDIT,
    "performance_issue_unique": _AUDIT,
    "performance_issue_same": _AUDIT,
    "performance_issue_same_index": _AUDIT,
}

_BLANK = " \t\r\v\f"
_COMMENT = re.compile(r"(#(\s.*)?)?", re.ASCII)
_LINE = re.compile(r"(\S+)\s+=\s+(\S+)", re.ASCII)
_NAME = re.compile(r"(.+)\.([^.]+)\.([^.]+)")
_DIGITS = re.compile(r"0|[1-9][0-9]*")
_DECIMAL = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LARGEST = 2**31 - 1


class Name(NamedTuple):
    """The left side of a line."""

    model: str
    scenario: str
    key: str

    def __str__(self) -> str:
        return ".".join(self)


@dataclass(frozen=True)
class UserConf:
    """The settings of a user.conf, in its order."""

    values: dict[Name, Number]

    def lookup(self, model: str, scenario: str, key: str) -> Number | None:
        """The value that LoadGen uses; a line with the scenario has priority over one with the model."""
        for name in ((model, scenario), (ANY, scenario), (model, ANY), (ANY, ANY)):
            if (value := self.values.get(Name(*name, key))) is not None:
                return value
        return None

    def for_run(self, model: str, scenario: str, overrides: Mapping[str, Number]) -> "UserConf":
        """The settings of one run, for its model and scenario, replaced by `overrides`.

        Raises:
            ConfigError: an override is not a key of the scenario, or its value is out of range.
        """
        for key, value in overrides.items():
            _check(Name(model, scenario, key), value, str(value), where="overrides")
        found = {key: self.lookup(model, scenario, key) for key in KEYS[scenario]} | dict(overrides)
        return UserConf({Name(model, scenario, k): v for k, v in found.items() if v is not None})

    def open_only(self) -> list[str]:
        """The settings that only the open division allows."""
        return [
            str(name)
            for name in self.values
            if any(name.key in OPEN_ONLY_KEYS[scenario] for scenario in _scenarios(name.scenario))
        ]

    def render(self) -> str:
        """The text of the file."""
        return "".join(f"{name} = {value!r}\n" for name, value in self.values.items())


def rendered_values(text: str, *, timing: bool) -> dict[str, str]:
    """The values by name in a `text` of `UserConf.render`; equal numbers have equal texts.

    Args:
        timing: whether with the keys of TIMING.
    """
    pairs = (line.partition(" = ") for line in text.splitlines())
    return {name: f"{float(value):.12g}" for name, _, value in pairs if timing or name.rpartition(".")[2] not in TIMING}


def parse(text: str, where: str, known_models: Collection[str]) -> UserConf:
    """Read a user.conf.

    Args:
        text: the file's content.
        where: the file, for messages.
        known_models: LoadGen's names of all benchmarks, with `-interactive` ones.

    Raises:
        ConfigError: LoadGen would ignore a line or misread it.
    """
    values: dict[Name, Number] = {}
    for number, raw in enumerate(text.split("\n"), start=1):
        line, place = raw.strip(_BLANK), f"{where}:{number}"
        if _COMMENT.fullmatch(line):
            continue
        match = _LINE.fullmatch(line)
        if not match:
            raise _fault(line, place)
        name = _name(match[1], match[2], place, known_models)
        if name in values:
            raise ConfigError(f"{name} is set twice", where=place, hint="delete one of the two lines")
        values[name] = _number(match[2])
        _check(name, values[name], match[2], place)
    return UserConf(values)


def _fault(line: str, place: str) -> ConfigError:
    if line.startswith("#"):
        return _syntax("a space after the # of a comment", line, place, f"# {line.lstrip('#').lstrip()}")
    left, equals, right = line.partition("=")
    values = right.split()
    if not equals and not _NAME.fullmatch(line):
        return ConfigError(
            "a line that is no setting",
            where=place,
            expected="model.scenario.key = value",
            found=line,
            hint=f"delete the line, or write it as a comment: # {line}",
        )
    if not values:
        expected = "model.scenario.key = value"
    elif len(values) > 1:
        expected = "one value, without a comment after it"
    else:
        expected = "spaces around the ="
    return _syntax(expected, line, place, f"{left.strip()} = {values[0] if values else 'NUMBER'}")


def _syntax(expected: str, line: str, place: str, corrected: str) -> ConfigError:
    return ConfigError(
        "LoadGen ignores or misreads this line",
        where=place,
        expected=expected,
        found=line,
        hint=f"write: {corrected}",
    )


def _name(left: str, right: str, place: str, known_models: Collection[str]) -> Name:
    match = _NAME.fullmatch(left)
    if not match:
        key = left.rpartition(".")[2]
        raise _syntax("model.scenario.key", left, place, f"*.Server.{key} = {right}")
    name = Name(*match.groups())
    if name.model != ANY and name.model not in known_models:
        raise _unknown("model", name.model, [ANY, *sorted(known_models)], place)
    if name.scenario == "Interactive":
        model = name.model.removesuffix("-interactive")
        interactive = "MODEL-interactive" if model == ANY else f"{model}-interactive"
        raise ConfigError(
            "LoadGen has no scenario Interactive",
            where=place,
            expected="Server of the -interactive model",
            found=str(name),
            hint=f"write: {interactive}.Server.{name.key} = {right}",
        )
    if name.scenario not in (ANY, *KEYS):
        raise _unknown("scenario", name.scenario, [ANY, *KEYS], place)
    return name


def _number(text: str) -> Number:
    """The value of `text` in decimal digits, or NaN."""
    if _DIGITS.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else math.nan


def _check(name: Name, value: Number, text: str, where: str) -> None:
    """Refuse a key that cannot be set in the scenario, and an invalid value."""
    kinds = _kinds(name, where)
    wrong = [kind for kind in kinds if not _fits(kind, value)]
    if not wrong:
        return
    whole = float(value).is_integer() and all(_fits(kind, int(value)) for kind in kinds)
    raise ConfigError(
        f"invalid value of {name.key}",
        where=where,
        expected=wrong[0],
        found=text,
        hint=f"write: {name} = {int(value) if whole else 'NUMBER'}",
    )


def _kinds(name: Name, where: str) -> set[Kind]:
    if reason := _REFUSED.get(name.key):
        raise ConfigError(
            f"{name.key} cannot be set in user.conf", where=where, expected=reason, hint="delete the line"
        )
    kinds = {KEYS[s][name.key].kind for s in _scenarios(name.scenario) if name.key in KEYS[s]}
    if kinds:
        return kinds
    readers = [scenario for scenario, keys in KEYS.items() if name.key in keys]
    if readers:
        raise ConfigError(
            f"{name.key} has no effect in {name.scenario}",
            where=where,
            expected=f"{name.key} for {' or '.join(readers)}",
            found=str(name),
            hint="delete the line",
        )
    names = sorted({key for s in _scenarios(name.scenario) for key in KEYS[s]})
    raise _unknown("key", name.key, names, where)


def _fits(kind: Kind, value: Number) -> bool:
    if kind is Kind.NUMBER:
        return 0 < value < math.inf
    largest = 1 if kind is Kind.FLAG else _LARGEST
    return type(value) is int and 0 <= value <= largest


def _scenarios(scenario: str) -> Iterable[str]:
    return KEYS if scenario == ANY else (scenario,)


def _unknown(what: str, found: str, valid: list[str], place: str) -> ConfigError:
    nearest = difflib.get_close_matches(found, valid, n=1, cutoff=0)[0]
    return ConfigError(
        f"unknown {what} {found}",
        where=place,
        expected=", ".join(valid),
        found=found,
        hint=f"the nearest {what} is {nearest}",
    )
