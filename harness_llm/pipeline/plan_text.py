"""The plan of a submission as text: stages of the preparation, and every run with its predicted duration. No I/O."""

from collections.abc import Iterator, Mapping, Sequence

from harness_llm.pipeline.earlier_runs import not_counted_line
from harness_llm.pipeline.forecast import Forecast
from harness_llm.pipeline.live.run_progress import RunView, clock
from harness_llm.runs.record import RunKey
from harness_llm.runs.selection import Present, RunStatus, Todo


def plan_lines(
    statuses: Sequence[RunStatus], present: Mapping[RunKey, Present], forecast: Forecast, unprepared: Sequence[str]
) -> Iterator[str]:
    """The lines of the plan for the runs of `statuses`."""
    yield from (f"  to prepare: {stage}" for stage in unprepared)
    total_s = 0.0
    for status in statuses:
        view = forecast.view(status.run_key.scenario, status.run_key.test)
        total_s += view.predicted_s if status.todo is Todo.MEASURE else 0
        reason = f" ({status.state_text}: {status.reason})" if status.run and not status.done else ""
        yield f"  {status.run_key.scenario:13}{status.run_key.test:13}{_action(status, view)}{reason}"
        if status.earlier and not status.done:
            yield f"    {not_counted_line(status.earlier, present[status.run_key])}"
    if total_s:
        yield f"about {clock(total_s)} of measurement; the engine starts once per scenario"


def _action(status: RunStatus, view: RunView) -> str:
    if status.todo is Todo.MEASURE:
        return f"{view.total} samples, about {clock(view.predicted_s)}"
    if status.todo is Todo.JUDGE:
        return status.todo
    return "done" if status.done else "not measured again"
