"""A run of LoadGen with an overloaded replica pool names its cause at its end."""

import io
from pathlib import Path
from typing import Any, cast

import pytest
from record_diagnosed_runs import Case, make, replay_context
from rich.console import Console

from harness_llm.analysis.diagnosis.causes import Cause
from harness_llm.analysis.diagnosis.diagnosis import diagnose
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.pipeline.attempts import missing_table
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.scenario_runs import ScenarioRuns
from harness_llm.runs.record import State

PARTS = ("Server performance: INVALID, ", "  cause: ", "    lower the rate ", "  LoadGen result INVALID: ")

pytestmark = [pytest.mark.engine(seconds=20), pytest.mark.processes]


def test_overload_is_named_at_the_end_of_the_run(tmp_path: Path) -> None:
    """Three replicas complete about 100 of 300 queries per second."""
    said, unused = io.StringIO(), cast("Any", None)
    panel = Panel(Console(file=said, width=1000))
    case = Case(300)
    with replay_context(tmp_path, case) as bench:
        runs = ScenarioRuns(bench.request, "Server", lambda _: bench, lambda own, _: make(own, case), unused, panel)
        [made] = runs.run(["performance"])
    assert made.run
    assert made.run.state is State.INVALID
    text = said.getvalue()
    heading, cause, _, sentence = (text.index(part) for part in PARTS)
    assert heading < cause < sentence
    assert text.count("constrain not met") == len(made.run.reasons) == 1
    assert "kv_cache" not in text
    assert made.cause.startswith("queue growth: queries without a first token grow by")
    assert "constrain not met" not in missing_table([made])
    assert text.count("  cause: queue growth: queries without a first token grow by") == 1
    assert "TTFT above its limit" in text
    assert "; set llama2-70b.Server.target_qps = " in text
    found = {finding.cause: finding for finding in diagnose(read_run(made.run.path)).findings}
    assert Cause.QUEUE_GROWTH in found[Cause.TTFT_LIMIT].because_of
    following = float(found[Cause.QUEUE_GROWTH].settings[0].following)
    assert 0 < following < case.qps
