"""Facts of runs as flat names and texts: equality of runs, and their differences. No I/O."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from harness_llm.config.user_conf import rendered_values
from harness_llm.runs.record import Run

WORK = ("dataset", "samples", "sampling", "stream", "audit")
"""Run facts that are equal for runs of the same work. `accuracy` and `profile` only affect the judgement."""
USER_CONF = "user_conf"
PERFORMANCE = "performance"

_VALUE_WIDTH = 60
_EQUAL_START = 20


@dataclass(frozen=True)
class ComparedFacts:
    """What a measurement depends on.

    Attributes:
        values: texts by dotted name.
        at_default: names whose value is the default of the version that recorded it. A version without such a field
            behaves the same, so a fact that only one side has is no difference if it is at its default.
    """

    values: Mapping[str, str]
    at_default: frozenset[str] = frozenset()

    def differences(self, wanted: "ComparedFacts") -> list[str]:
        """`name: found vs wanted` for every fact in which the two differ."""
        found = {n: v for n, v in self.values.items() if n in wanted.values or n not in self.at_default}
        other = {n: v for n, v in wanted.values.items() if n in self.values or n not in wanted.at_default}
        return differences(found, other)

    def only(self, keep: Callable[[str], bool]) -> "ComparedFacts":
        """The facts whose names `keep` accepts."""
        return ComparedFacts({name: value for name, value in self.values.items() if keep(name)}, self.at_default)


def recorded_facts(run: Run) -> ComparedFacts:
    """The facts of a run; none without a record."""
    record = run.record
    if record is None:
        return ComparedFacts({})
    return run_facts_of(record.fingerprint, record.run_facts, record.test, record.at_default)


def run_facts_of(
    fingerprint: Mapping[str, Any], run_facts: Mapping[str, Any], test: str, at_default: Iterable[str]
) -> ComparedFacts:
    """The facts of a run of `test`.

    The keys of user.conf in `TIMING` affect only performance runs; every other key affects all tests.

    Args:
        run_facts: as in `RunRecord`.
        at_default: from `names_at_default`.
    """
    conf = rendered_values(str(run_facts.get(USER_CONF, "")), timing=test == PERFORMANCE)
    work = {name: run_facts[name] for name in WORK if name in run_facts}
    return ComparedFacts(dict(flat({**fingerprint, **work, USER_CONF: conf})), frozenset(at_default))


def names_at_default(**sections: BaseModel) -> list[str]:
    """Dotted names of the fields of `sections` that are at their default."""
    every = dict(flat({name: section.model_dump(mode="json") for name, section in sections.items()}))
    changed = {name: section.model_dump(mode="json", exclude_defaults=True) for name, section in sections.items()}
    return sorted(every.keys() - dict(flat(changed)).keys())


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """`key: found vs wanted` for every key in which two nested mappings differ."""
    ours, theirs = dict(flat(found)), dict(flat(wanted))
    return [
        f"{key}: {_both(ours.get(key, 'absent'), theirs.get(key, 'absent'))}"
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def flat(facts: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Dotted names and texts of all values in nested `facts`; the mappings in a list are named by number."""
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif value and isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value):
            yield from flat({f"{key}.{number}": one for number, one in enumerate(value)}, prefix)
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _both(ours: str, theirs: str) -> str:
    """Two unequal texts, without their equal start if they differ only beyond the width of a value."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    start = next((place for place, (one, other) in pairs if one != other), min(len(ours), len(theirs)))
    cut = start - _EQUAL_START if start >= _VALUE_WIDTH - 1 else 0
    return " vs ".join(_short(f"…{text[cut:]}" if cut else text) for text in (ours, theirs))


def _short(text: str) -> str:
    return (text or "empty") if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"
