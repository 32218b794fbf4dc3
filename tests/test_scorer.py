"""What scoring takes is asked for before anything runs."""

from pathlib import Path

import pytest

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import benchmark_names, load_benchmark
from harness_llm.errors import EnvironmentMissing
from harness_llm.evaluate.official.scripts import ACCURACY_SCRIPTS
from harness_llm.evaluate.run_result import Scorer
from harness_llm.paths import CHECKOUT, Workspace

WORKSPACE = Workspace(CHECKOUT)
NOWHERE = Path("nowhere")
BENCHMARKS = [load_benchmark(name, WORKSPACE) for name in benchmark_names(WORKSPACE)]


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_what_is_lacking_is_said_at_once(benchmark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLPERF_INFERENCE_DIR", raising=False)
    monkeypatch.setenv("PATH", "")  # no container engine
    scorer = Scorer(benchmark, {}, Assets(NOWHERE, NOWHERE, {}, NOWHERE))
    methods = set(benchmark.accuracy.scoring.values())
    if methods & {"mbxp", *ACCURACY_SCRIPTS}:
        with pytest.raises(EnvironmentMissing) as caught:
            scorer.require()
        assert caught.value.hint
    else:
        scorer.require()
