"""Which runs make up the results, and what is missing. Pure; `status`, `submit` and `package` share it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_llm.engines import REPLAY
from harness_llm.runs import Cell, Run, State, digest

MISSING = "MISSING"
NOT_COUNTED = "NOT COUNTED"

_UNSAID = {State.RUNNING: "in progress", State.INTERRUPTED: "ended without a record"}
_DIFFERENCES_SHOWN = 4
_VALUE_WIDTH = 60


@dataclass(frozen=True)
class Wanted:
    """What a run must be to count.

    Attributes:
        rehearsed: whether runs of the replay engine count, and no others.
        subjects: by scenario, the one subject that counts; without an entry, it is the newest of which every
            test has a VALID run.
    """

    benchmark: str
    profile: str
    round: str
    division: str
    rehearsed: bool = False
    subjects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class CellStatus:
    """How a cell stands.

    Attributes:
        run: the run that counts or, while there is none, the newest attempt.
        state_text: VALID for a cell that is done, MISSING without any attempt, NOT COUNTED where a VALID run
            may not stand in this result, otherwise the state of the newest attempt.
        reason: why the cell is not done, one line; empty if it is.
    """

    cell: Cell
    run: Run | None
    state_text: str
    reason: str

    @property
    def done(self) -> bool:
        """Whether `run` counts."""
        return self.state_text == State.VALID


@dataclass(frozen=True)
class Selection:
    """The cells of a submission, by scenario and test in the order asked for."""

    cells: tuple[CellStatus, ...]

    @property
    def missing(self) -> list[CellStatus]:
        """The cells that no run answers."""
        return [status for status in self.cells if not status.done]

    @property
    def runs(self) -> dict[str, dict[str, Run]]:
        """The runs that count, by scenario and test."""
        chosen: dict[str, dict[str, Run]] = {}
        for status in self.cells:
            if status.done and status.run:
                chosen.setdefault(status.cell.scenario, {})[status.cell.test] = status.run
        return chosen


def select(runs: Iterable[Run], scenarios: Sequence[str], tests: Sequence[str], wanted: Wanted) -> Selection:
    """Choose, per scenario, runs of one subject: the newest VALID one of each test.

    Args:
        runs: oldest first, as `find_runs` gives them.
    """
    ours = [run for run in runs if _concerns(run, wanted)]
    cells: list[CellStatus] = []
    for scenario in scenarios:
        own = [run for run in ours if run.cell.scenario == scenario]
        countable = [run for run in own if not _obstacle(run, wanted)]
        subject = wanted.subjects.get(scenario) or _newest_subject(countable, tests)
        for test in tests:
            cell = Cell(wanted.benchmark, scenario, test)
            cells.append(_status(cell, [run for run in own if run.cell == cell], subject, wanted))
    return Selection(tuple(cells))


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """`key: found vs wanted` for every key in which two subjects differ."""
    ours, theirs = dict(_flat(found)), dict(_flat(wanted))
    return [
        f"{key}: {_short(ours.get(key, 'absent'))} vs {_short(theirs.get(key, 'absent'))}"
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def _concerns(run: Run, wanted: Wanted) -> bool:
    """Runs of another profile or round are as good as none; one without a record has not said yet."""
    if run.cell.benchmark != wanted.benchmark:
        return False
    return run.record is None or (run.record.profile, run.record.round) == (wanted.profile, wanted.round)


def _obstacle(run: Run, wanted: Wanted) -> str:
    """Why a run may not count, whatever its subject."""
    if run.record is None or run.state is not State.VALID:
        return "; ".join(run.reasons) or _UNSAID.get(run.state, "no reason recorded")
    if run.record.engine == REPLAY and not wanted.rehearsed:
        return "VALID but of the replay engine, which computes nothing"
    if run.record.engine != REPLAY and wanted.rehearsed:
        return f"VALID but of the engine {run.record.engine}, where the replay engine is rehearsed"
    if wanted.division == "closed" and run.record.division != "closed":
        return f"VALID but made for the {run.record.division} division"
    if wanted.division == "closed" and (departures := run.record.cell_facts.get("departures")):
        return f"VALID but not what closed allows: {'; '.join(departures)}"
    return ""


def _newest_subject(countable: Sequence[Run], tests: Sequence[str]) -> dict[str, Any] | None:
    """The newest subject of which every test is there; the newest of all while none is complete."""
    tested: dict[str, set[str]] = {}
    for run in countable:
        tested.setdefault(digest(_subject(run)), set()).add(run.cell.test)
    complete = [run for run in countable if tested[digest(_subject(run))] >= set(tests)]
    newest = (complete or countable)[-1:]
    return _subject(newest[0]) if newest else None


def _status(cell: Cell, attempts: Sequence[Run], subject: Mapping[str, Any] | None, wanted: Wanted) -> CellStatus:
    for run in reversed(attempts):
        if subject is not None and not _obstacle(run, wanted) and digest(_subject(run)) == digest(dict(subject)):
            return CellStatus(cell, run, State.VALID, "")
    if not attempts:
        return CellStatus(cell, None, MISSING, "no run")
    newest = attempts[-1]
    state_text = NOT_COUNTED if newest.state is State.VALID else newest.state
    reason = _obstacle(newest, wanted) or _other_subject(_subject(newest), subject or {})
    return CellStatus(cell, newest, state_text, reason)


def _other_subject(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    lines = differences(found, wanted)
    more = len(lines) - _DIFFERENCES_SHOWN
    shown = lines[:_DIFFERENCES_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    return f"VALID but of another subject: {'; '.join(shown)}"


def _subject(run: Run) -> dict[str, Any]:
    return run.record.subject if run.record else {}


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value if isinstance(value, str) else json.dumps(value, default=str)


def _short(text: str) -> str:
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 1]}…"
