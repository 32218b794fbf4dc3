"""Sessions of a target search: which command continues one, and trials whose processes fail."""

import io
from pathlib import Path
from typing import Any

import pytest
from asked import options
from rich.console import Console
from tuning_sessions import SESSION

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import EVALUATION
from harness_llm.config.plan import resolve
from harness_llm.errors import ProcessFailed, RunFailed
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning.search_steps import Confirm, Goal, Probe
from harness_llm.pipeline.tuning.target_session import TargetSearch, target_session
from harness_llm.protocol.token_store import write_store
from harness_llm.runs.trial_store import Session, open_session


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


def session_of(folder: Path, scenario: str, *lines: str) -> Session:
    """The session of `scenario` with `lines` of user.conf."""
    conf = folder / "user.conf"
    model = "llama2-70b-interactive.Server" if scenario == "Interactive" else f"llama2-70b.{scenario}"
    conf.write_text("".join(f"{model}.{line}\n" for line in lines))
    asked = options(model="demo", profile="valid", scenarios=(scenario,), system_name="box", user_conf=conf)
    request = resolve(asked, Workspace())
    [plan] = request.scenarios
    pipeline = Pipeline(request, Panel(Console(file=io.StringIO())), machine={})
    write_store(folder / EVALUATION, [[1, 2]])
    assets = Assets(folder, folder, {EVALUATION: folder / EVALUATION}, folder)
    return target_session(pipeline, plan, assets, "target", "harness-llm tune")


@pytest.mark.parametrize(
    ("scenario", "key"),
    [
        ("Offline", "target_qps"),
        ("Server", "target_qps"),
        ("Interactive", "target_qps"),
        ("SingleStream", "target_latency"),
    ],
)
def test_session_continues_with_another_target_only(tmp_path: Path, scenario: str, key: str) -> None:
    target, duration = f"{key} = 5", "min_duration = 600000"
    session = session_of(tmp_path, scenario, target, duration)
    assert session.measures_the_same(session_of(tmp_path, scenario, f"{key} = 7", duration))
    for lines in (["min_duration = 700000"], [duration, "min_query_count = 5000"]):
        assert not session.measures_the_same(session_of(tmp_path, scenario, target, *lines)), lines
