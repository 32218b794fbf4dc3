"""Trials of engine settings with the real LoadGen and replicas of the replay engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from harness_llm.config.assets import Assets
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import CONFIG
from harness_llm.pipeline.submit import Pipeline
from harness_llm.pipeline.tuning import engine_probes
from harness_llm.pipeline.tuning.engine_probes import PoolProbes
from harness_llm.pipeline.tuning.engine_search import Step
from harness_llm.pipeline.tuning.search_space import Parameter, SearchSpace
from harness_llm.pipeline.tuning.trial_runs import TrialRuns

pytestmark = [pytest.mark.engine(seconds=20), pytest.mark.processes]

BACKLOG, RECORDED = "harness_config.backlog", "replay_config.recorded"
SPACE = SearchSpace(
    (Parameter(BACKLOG, (0, 64), 64, restart=False), Parameter(RECORDED, ("", "/none"), "", restart=True)), 1, 1
)
FAST = ("replay_config.step_s=0.001", "replay_config.output_tokens=4", "replay_config.prefill_tokens_per_s=0")


@pytest.fixture
def probes(
    workspace: Workspace, assets: Assets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PoolProbes]:
    monkeypatch.setattr(engine_probes, "_SHORTEST_S", 0.2)
    options = Options(gpu="cpu", engine="replay", scenarios=("Offline",), system_name="box", set=FAST, profile="smoke")
    request = resolve(options, workspace)
    pipeline = Pipeline(request, Panel(Console(stderr=True)))
    runs = TrialRuns(pipeline, request.scenarios[0], assets, tmp_path)
    yield PoolProbes(request, runs, SPACE)
    runs.stop()


def test_engines_start_again_only_where_settings_need_it_and_failures_are_trials(probes: PoolProbes) -> None:
    shipped = probes.measure(0, Step({}, ""))
    assert (shipped.state, shipped.settings, shipped.reason) == ("VALID", {}, "")
    assert shipped.throughput
    pool = probes.runs._context.pool if probes.runs._context else None

    sized = probes.measure(1, Step({BACKLOG: 0}, "", samples_per_s=4000))
    assert probes.runs._context
    assert probes.runs._context.pool is pool
    assert sized.queries == 800
    assert yaml.safe_load((Path(str(sized.run)) / CONFIG).read_text())["harness_config"]["backlog"] == 0

    failed = probes.measure(2, Step({RECORDED: "/none"}, ""))
    assert (failed.state, failed.throughput, failed.run) == ("FAILED", None, None)
    assert "/none" in failed.reason

    again = probes.measure(3, Step({}, ""))
    assert again.state == "VALID"
    assert probes.runs._context.pool is not pool
    assert yaml.safe_load((Path(str(again.run)) / CONFIG).read_text())["harness_config"]["backlog"] == 64
