"""Trials of a target search whose processes fail."""

import io
from pathlib import Path
from typing import Any

import pytest
from asked import options
from rich.console import Console
from tuning_sessions import SESSION

from harness_llm.config.plan import resolve
from harness_llm.errors import ProcessFailed, RunFailed
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning.search_steps import Confirm, Goal, Probe
from harness_llm.pipeline.tuning.target_session import TargetSearch
from harness_llm.runs.trial_store import open_session


class FailingRuns:
    """Trials whose engine does not start."""

    def make(self, step: Probe | Confirm) -> Any:
        raise ProcessFailed("replica-0 failed", found=f"no start at {step.target:g}")

    def stop(self) -> None:
        pass


@pytest.mark.parametrize("scenario", ["Server", "Offline"])
def test_failed_trials_in_a_row_end_the_command_and_the_next_one_tries_again(tmp_path: Path, scenario: str) -> None:
    request = resolve(options(model="demo", profile="fast", scenarios=(scenario,), system_name="box"), Workspace())
    [plan] = request.scenarios
    pipeline = Pipeline(request, Panel(Console(file=io.StringIO())), machine={})
    runs = FailingRuns()
    for command in (1, 2):
        store = open_session(tmp_path, SESSION)
        search = TargetSearch(pipeline, plan, runs, store, Goal(plan.load))  # type: ignore[arg-type]
        with pytest.raises(RunFailed, match="3 trials in a row failed") as caught:
            search.run()
        assert caught.value.where == str(store.folder)
        assert "replica-0 failed" in caught.value.found
        assert len(store.trials) == 3 * command
