"""Selection of the runs that make up a result. No I/O; `status`, `submit` and `package` use it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness_llm.config.engines import REPLAY
from harness_llm.runs.record import Run, RunKey, State, digest

MISSING = "MISSING"
NOT_COUNTED = "NOT COUNTED"

_WITHOUT_REASON = {
    State.RUNNING: "in progress",
    State.INTERRUPTED: "ended without a record",
}
# The newest run of the first state that has one.
_USABLE = (State.VALID, State.MEASURED)
_DIFFERENCES_SHOWN = 4
_VALUE_WIDTH = 60
_EQUAL_START = 20


@dataclass(frozen=True)
class Wanted:
    """The conditions for a run to be selected.

    Attributes:
        rehearsed: whether only runs of the replay engine are selected; otherwise they never are.
        fingerprints: the required fingerprint by scenario; default: the newest one with a VALID run of every test.
    """

    benchmark: str
    profile: str
    round: str
    division: str
    rehearsed: bool = False
    fingerprints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunStatus:
    """The status of one run key.

    Attributes:
        run: the selected run, the run to judge again, or the newest attempt.
        state_text: VALID for a selected run, MEASURED for a run to judge again, MISSING without an attempt, NOT COUNTED
            for a VALID or MEASURED run that is not allowed in this result, otherwise the state of the newest attempt.
        reason: why no run is selected, one line; empty if one is.
    """

    run_key: RunKey
    run: Run | None
    state_text: str
    reason: str

    @property
    def done(self) -> bool:
        """Whether `run` is selected."""
        return self.state_text == State.VALID

    @property
    def measured(self) -> Run | None:
        """The run that is judged again instead of repeated: its log is complete, and it is of the right fingerprint."""
        return self.run if self.state_text == State.MEASURED else None


@dataclass(frozen=True)
class Selection:
    """The runs of a submission, in the order of scenarios and tests."""

    run_keys: tuple[RunStatus, ...]

    @property
    def missing(self) -> list[RunStatus]:
        """The run keys without a selected run."""
        return [status for status in self.run_keys if not status.done]

    @property
    def runs(self) -> dict[str, dict[str, Run]]:
        """The selected runs, by scenario and test."""
        chosen: dict[str, dict[str, Run]] = {}
        for status in self.run_keys:
            if status.done and status.run:
                chosen.setdefault(status.run_key.scenario, {})[status.run_key.test] = status.run
        return chosen


@dataclass(frozen=True)
class Candidates:
    """The runs that a selection is made from, oldest first, and its conditions."""

    runs: Sequence[Run]
    scenarios: Sequence[str]
    tests: Sequence[str]
    wanted: Wanted

    def select(self, newer: Sequence[Run] = ()) -> Selection:
        """Select from the runs and from `newer` ones, which replace those that were judged again."""
        runs = {run.path: run for run in (*self.runs, *newer)}
        return select(runs.values(), self.scenarios, self.tests, self.wanted)


def select(runs: Iterable[Run], scenarios: Sequence[str], tests: Sequence[str], wanted: Wanted) -> Selection:
    """Select for each scenario the newest VALID run of each test, all of one fingerprint.

    Args:
        runs: oldest first.
    """
    relevant = [run for run in runs if _is_relevant(run, wanted)]
    run_keys: list[RunStatus] = []
    for scenario in scenarios:
        own = [run for run in relevant if run.run_key.scenario == scenario]
        countable = [run for run in own if run.state is State.VALID and not _refusal(run, wanted)]
        fingerprint = wanted.fingerprints.get(scenario) or _newest_fingerprint(countable, tests)
        for test in tests:
            run_key = RunKey(wanted.benchmark, scenario, test)
            run_keys.append(_status(run_key, [run for run in own if run.run_key == run_key], fingerprint, wanted))
    return Selection(tuple(run_keys))


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """`key: found vs wanted` for every key in which two fingerprints differ."""
    ours, theirs = dict(flat(found)), dict(flat(wanted))
    return [
        f"{key}: {_both(ours.get(key, 'absent'), theirs.get(key, 'absent'))}"
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def _is_relevant(run: Run, wanted: Wanted) -> bool:
    """Ignore runs of other benchmarks, profiles and rounds; keep unfinished runs."""
    if run.run_key.benchmark != wanted.benchmark:
        return False
    return run.record is None or (run.record.profile, run.record.round) == (wanted.profile, wanted.round)


def _refusal(run: Run, wanted: Wanted) -> str:
    """Why a run that is VALID, or may become so, cannot be selected with any fingerprint; empty if it can."""
    if run.record is None or run.state not in _USABLE:
        return _reason(run)
    if run.record.engine == REPLAY and not wanted.rehearsed:
        return f"{run.state} but of the replay engine, which computes nothing"
    if run.record.engine != REPLAY and wanted.rehearsed:
        return f"{run.state} but of the engine {run.record.engine}; this profile uses the replay engine"
    if wanted.division == "closed" and run.record.division != "closed":
        return f"{run.state} but made for the {run.record.division} division"
    if wanted.division == "closed" and (violations := run.record.run_facts.get("violations")):
        return f"{run.state} but not allowed in closed: {'; '.join(violations)}"
    return ""


def _newest_fingerprint(countable: Sequence[Run], tests: Sequence[str]) -> dict[str, Any] | None:
    """The newest fingerprint with a run of every test, or the newest one if there is none."""
    tested: dict[str, set[str]] = {}
    for run in countable:
        tested.setdefault(digest(_fingerprint(run)), set()).add(run.run_key.test)
    complete = [run for run in countable if tested[digest(_fingerprint(run))] >= set(tests)]
    newest = (complete or countable)[-1:]
    return _fingerprint(newest[0]) if newest else None


def _status(
    run_key: RunKey, attempts: Sequence[Run], fingerprint: Mapping[str, Any] | None, wanted: Wanted
) -> RunStatus:
    wanted_digest = digest(dict(fingerprint)) if fingerprint else ""
    usable = [run for run in attempts if not _refusal(run, wanted) and wanted_digest in ("", digest(_fingerprint(run)))]
    for state in _USABLE:
        if same := [run for run in usable if run.state is state]:
            return RunStatus(run_key, same[-1], state, "" if state is State.VALID else _reason(same[-1]))
    if not attempts:
        return RunStatus(run_key, None, MISSING, "no run")
    newest = attempts[-1]
    state_text = NOT_COUNTED if newest.state in _USABLE else newest.state
    reason = _refusal(newest, wanted) or _other_fingerprint(newest, fingerprint or {})
    return RunStatus(run_key, newest, state_text, reason)


def _reason(run: Run) -> str:
    return "; ".join(run.reasons) or _WITHOUT_REASON.get(run.state, "no reason recorded")


def _other_fingerprint(run: Run, wanted: Mapping[str, Any]) -> str:
    lines = differences(_fingerprint(run), wanted)
    more = len(lines) - _DIFFERENCES_SHOWN
    shown = lines[:_DIFFERENCES_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    return f"{run.state} but of another fingerprint: {'; '.join(shown)}"


def _fingerprint(run: Run) -> dict[str, Any]:
    return run.record.fingerprint if run.record else {}


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
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"


def with_inferred(selection: Selection, inferred: Sequence[tuple[str, str]]) -> Selection:
    """`selection` with the runs of each source copied to its target, as (target, source) in `inferred`."""
    copies = [
        replace(status, run_key=replace(status.run_key, scenario=target))
        for target, source in inferred
        for status in selection.run_keys
        if status.run_key.scenario == source
    ]
    return Selection((*selection.run_keys, *copies))
