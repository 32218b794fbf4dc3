"""VALID runs that differ from those that would be made now: in what, and how to count them again. No I/O."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from harness_llm.pipeline.attempts import RunAttempts
from harness_llm.runs.facts import USER_CONF, ComparedFacts, recorded_facts
from harness_llm.runs.record import Run, RunKey, State
from harness_llm.runs.selection import Present, Selection

_SERVER_TARGET = ".Server.target_qps"


def not_counted_line(earlier: Run, present: Present) -> str:
    """One line that names the VALID run `earlier`, which does not count with the present user.conf."""
    facts = recorded_facts(earlier)
    better = any(
        float(facts.values[name]) > float(present.facts.values[name])
        for name in _names(facts, present)
        if name.endswith(_SERVER_TARGET) and name in facts.values and name in present.facts.values
    )
    kind = "a better VALID run" if better else "a VALID run"
    return f"{kind} does not count: {'; '.join(_lines(facts, present))}: {earlier.path}"


def with_earlier_runs(
    made: Sequence[RunAttempts], selection: Selection, present: Mapping[RunKey, Present], user_conf: Path
) -> list[RunAttempts]:
    """`made` with the lines of `user_conf` that count an earlier VALID run in place of an INVALID one."""
    earlier = {s.run_key: s.earlier for s in selection.missing if s.earlier and s.state_text == State.INVALID}
    return [
        replace(one, restoring=_restoring(earlier[one.run_key], present[one.run_key], user_conf))
        if one.run_key in earlier
        else one
        for one in made
    ]


def _restoring(earlier: Run, present: Present, user_conf: Path) -> str:
    lines = "; ".join(_lines(recorded_facts(earlier), present, "without the line"))
    return f"to count the earlier VALID run {earlier.path} again, write in {user_conf}: {lines}"


def present_differences(selection: Selection, present: Mapping[RunKey, Present]) -> list[str]:
    """One sentence for each fact in which the selected runs differ from runs made now."""
    runs: dict[str, list[str]] = {}
    for status in selection.run_keys:
        if status.run and status.run_key in present:
            for line in _differences(status.run, present[status.run_key]):
                runs.setdefault(line, []).append(f"{status.run_key.scenario} {status.run_key.test}")
    return [f"packaged, but a run made now differs in {line} ({', '.join(names)})" for line, names in runs.items()]


def _differences(run: Run, present: Present) -> list[str]:
    lines = recorded_facts(run).differences(present.facts)
    judged_by = run.record.judged_by if run.record else ""
    return lines if judged_by in ("", present.judged_by) else [*lines, "the judgement: gates, limits or judging source"]


def _lines(earlier: ComparedFacts, present: Present, absent: str = "no line") -> list[str]:
    """The lines of user.conf of the earlier run that differ from the present ones; `absent` precedes the others."""
    return [
        f"{name} = {earlier.values[full]}" if full in earlier.values else f"{absent} {name}"
        for full in _names(earlier, present)
        for name in [full.removeprefix(f"{USER_CONF}.")]
    ]


def _names(earlier: ComparedFacts, present: Present) -> list[str]:
    names = {name for name in (*earlier.values, *present.facts.values) if name.startswith(f"{USER_CONF}.")}
    return sorted(name for name in names if earlier.values.get(name) != present.facts.values.get(name))
