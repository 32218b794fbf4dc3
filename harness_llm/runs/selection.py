"""Selection of the runs that make up a result. No I/O; `status`, `submit` and `package` use it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harness_llm.config.commands import typed
from harness_llm.config.engines import REPLAY
from harness_llm.runs.facts import USER_CONF, WORK, ComparedFacts, recorded_facts
from harness_llm.runs.record import VERSION, Run, RunKey, RunRecord, State

MISSING = "MISSING"
NOT_COUNTED = "NOT COUNTED"

_WITHOUT_REASON = {
    State.RUNNING: "in progress",
    State.INTERRUPTED: "ended without a record",
}
_FINISHED = (State.VALID, State.MEASURED, State.INVALID)
_DIFFERENCES_SHOWN = 4
_JUDGED_OTHERWISE = "gates, limits or the judging source have changed since its judgement"
SETTLED = f"measured with the present settings; {typed(again=True)} measures it again"


class Todo(StrEnum):
    """What `submit` does for a run key; nothing if its run is selected, or is INVALID with the present settings."""

    NOTHING = "nothing"
    JUDGE = "to judge again"
    MEASURE = "to measure"


@dataclass(frozen=True)
class Present:
    """A run as it would be made now.

    Attributes:
        judged_by: as in `RunRecord`; empty to accept every judgement.
    """

    facts: ComparedFacts
    judged_by: str = ""


@dataclass(frozen=True)
class Wanted:
    """The conditions for a run to be selected.

    Attributes:
        present: the run that would be made now, for every run key.
        newest: whether the newest complete set of runs is selected, instead of runs that equal the present ones.
        again: whether an INVALID run that equals the present one is measured again.
        rehearsed: whether only runs of the replay engine are selected; otherwise they never are.
        compared: names of the facts that are compared; default: all.
    """

    benchmark: str
    profile: str
    round: str
    division: str
    present: Mapping[RunKey, Present] = field(default_factory=dict)
    newest: bool = False
    again: bool = False
    rehearsed: bool = False
    compared: Callable[[str], bool] = field(default=bool, repr=False)


@dataclass(frozen=True)
class RunStatus:
    """The status of one run key.

    Attributes:
        run: the selected run, the run to judge again, or the newest attempt.
        state_text: state of `run`; MISSING without one; NOT COUNTED for a VALID or MEASURED run that is not allowed in
            this result.
        reason: why no run is selected, one line; empty if one is.
        earlier: the newest VALID run that differs from the present one in user.conf only.
    """

    run_key: RunKey
    run: Run | None
    state_text: str
    reason: str
    todo: Todo
    earlier: Run | None = None

    @property
    def done(self) -> bool:
        """Whether `run` is selected."""
        return self.todo is Todo.NOTHING and self.state_text == State.VALID


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
    """Select for each scenario and test the newest VALID run with the required facts.

    Args:
        runs: oldest first.
    """
    relevant = [run for run in runs if _is_relevant(run, wanted)]
    statuses: list[RunStatus] = []
    for scenario in scenarios:
        keys = [RunKey(wanted.benchmark, scenario, test) for test in tests]
        own = [run for run in relevant if run.run_key in keys]
        wanted_of_scenario = _with_newest_set(wanted, keys, own) if wanted.newest else wanted
        statuses += [_status(key, [r for r in own if r.run_key == key], wanted_of_scenario) for key in keys]
    return Selection(tuple(statuses))


def _is_relevant(run: Run, wanted: Wanted) -> bool:
    """Ignore runs of other benchmarks, profiles and rounds, and unfinished runs of unknown ones."""
    if run.run_key.benchmark != wanted.benchmark:
        return False
    record = run.record or run.begun
    return bool(run.fault) or (record is not None and (record.profile, record.round) == (wanted.profile, wanted.round))


def _refusal(run: Run, wanted: Wanted) -> str:
    """Why a run cannot count, whatever its facts; empty if it can, or if it is INVALID."""
    if run.record is None or run.state not in _FINISHED:
        return _reason(run)
    why = _not_allowed(run.record, wanted)
    return f"{run.state} but {why}" if why else ""


def _not_allowed(record: RunRecord, wanted: Wanted) -> str:
    if record.version < VERSION:
        return "measured by an earlier version of harness-llm, whose records lack facts to compare"
    if record.engine == REPLAY and not wanted.rehearsed:
        return "of the replay engine, which computes nothing"
    if record.engine != REPLAY and wanted.rehearsed:
        return f"of the engine {record.engine}; this profile uses the replay engine"
    if wanted.division == "closed" and record.division != "closed":
        return f"made for the {record.division} division"
    if wanted.division == "closed" and (violations := record.run_facts.get("violations")):
        return f"not allowed in closed: {'; '.join(violations)}"
    return ""


def _with_newest_set(wanted: Wanted, keys: Sequence[RunKey], own: Sequence[Run]) -> Wanted:
    """`wanted` with the facts of the newest complete set of VALID runs of one scenario, or of the newest one."""
    shared = _shared_work([wanted.present[key].facts for key in keys if key in wanted.present])
    sets: list[tuple[ComparedFacts, set[RunKey], int]] = []
    for place, run in enumerate(own):
        if run.state is State.VALID and not _refusal(run, wanted):
            facts = recorded_facts(run).only(shared)
            same = next((one for one in sets if not facts.differences(one[0])), (facts, set(), place))
            sets = [one for one in sets if one is not same] + [(facts, same[1] | {run.run_key}, place)]
    if not sets:
        return replace(wanted, present={})
    facts = max(sets, key=lambda one: (one[1] >= set(keys), one[2]))[0]
    return replace(wanted, present=dict.fromkeys(keys, Present(facts)), compared=shared)


def _shared_work(facts: Sequence[ComparedFacts]) -> Callable[[str], bool]:
    """A test of names: whether all runs of a scenario have equal values of the fact."""
    first = facts[0].values if facts else {}
    equal = {name for name, text in first.items() if all(one.values.get(name) == text for one in facts)}

    def is_shared(name: str) -> bool:
        section = name.partition(".")[0]
        return section != USER_CONF and (section not in WORK or name in equal)

    return is_shared


def _status(run_key: RunKey, attempts: Sequence[Run], wanted: Wanted) -> RunStatus:
    present = wanted.present.get(run_key)
    usable = [run for run in attempts if not _refusal(run, wanted)]
    equal = [run for run in usable if present and not _differences(run, present, wanted)]
    earlier = _earlier(usable, present, wanted) if present and not wanted.newest else None
    if equal and present:
        run = max(reversed(equal), key=lambda run: -_PREFERENCE.index((run.state, _todo(run, present, wanted))))
        todo = _todo(run, present, wanted)
        return RunStatus(run_key, run, run.state, _why(run, todo, wanted), todo, earlier)
    if not attempts:
        return RunStatus(run_key, None, MISSING, "no run", Todo.MEASURE)
    newest = attempts[-1]
    state_text = NOT_COUNTED if newest.state in (State.VALID, State.MEASURED) else newest.state
    reason = _refusal(newest, wanted) or _other_facts(newest, present, wanted)
    return RunStatus(run_key, newest, state_text, reason, Todo.MEASURE, earlier)


# Of the runs with the required facts, the newest of the first kind that there is.
_PREFERENCE = (
    (State.VALID, Todo.NOTHING),
    (State.VALID, Todo.JUDGE),
    (State.MEASURED, Todo.JUDGE),
    (State.INVALID, Todo.JUDGE),
    (State.INVALID, Todo.NOTHING),
    (State.INVALID, Todo.MEASURE),
)


def _todo(run: Run, present: Present, wanted: Wanted) -> Todo:
    """What `submit` does if `run`, which has the required facts, is the best one."""
    if run.state is State.MEASURED:
        return Todo.JUDGE
    judged_by = run.record.judged_by if run.record else ""
    if present.judged_by and judged_by not in ("", present.judged_by):
        return Todo.JUDGE
    return Todo.MEASURE if run.state is State.INVALID and wanted.again else Todo.NOTHING


def _why(run: Run, todo: Todo, wanted: Wanted) -> str:
    """Why a run with the required facts is not selected; empty if it is."""
    if run.state is State.MEASURED:
        return _reason(run)
    if todo is Todo.JUDGE:
        return _JUDGED_OTHERWISE
    if run.state is State.VALID:
        return ""
    return _reason(run) if todo is Todo.MEASURE or wanted.newest else f"{_reason(run)} ({SETTLED})"


def _earlier(usable: Sequence[Run], present: Present, wanted: Wanted) -> Run | None:
    """The newest VALID run that differs from the present one in user.conf only."""
    for run in reversed(usable):
        found = _differences(run, present, wanted)
        if run.state is State.VALID and found and all(line.startswith(f"{USER_CONF}.") for line in found):
            return run
    return None


def _reason(run: Run) -> str:
    return "; ".join(run.reasons) or _WITHOUT_REASON.get(run.state, "no reason recorded")


def _other_facts(run: Run, present: Present | None, wanted: Wanted) -> str:
    """Why a finished run without the required facts does not count."""
    if present is None and not wanted.newest and run.state is not State.INVALID:
        return f"{run.state} but not compared: model and data are not prepared"
    lines = _differences(run, present, wanted) if present else []
    if not lines:
        return _reason(run)
    more = len(lines) - _DIFFERENCES_SHOWN
    shown = lines[:_DIFFERENCES_SHOWN] + ([f"and {more} more"] if more > 0 else [])
    other = "the other runs of the result" if wanted.newest else "a run made now"
    but = "" if run.state is State.INVALID else f"{run.state} but "
    return f"{but}not equal to {other}: {'; '.join(shown)}"


def _differences(run: Run, present: Present, wanted: Wanted) -> list[str]:
    return recorded_facts(run).only(wanted.compared).differences(present.facts)


def with_inferred(selection: Selection, inferred: Sequence[tuple[str, str]]) -> Selection:
    """`selection` with the runs of each source copied to its target, as (target, source) in `inferred`."""
    copies = [
        replace(status, run_key=replace(status.run_key, scenario=target))
        for target, source in inferred
        for status in selection.run_keys
        if status.run_key.scenario == source
    ]
    return Selection((*selection.run_keys, *copies))
