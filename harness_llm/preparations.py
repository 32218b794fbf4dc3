"""Who puts the assets of a benchmark in place."""

from harness_llm.assets import Preparation
from harness_llm.benchmarks import Benchmark
from harness_llm.demo.assets import DemoPreparation
from harness_llm.demo.stand_in import StandInPreparation
from harness_llm.published import PublishedPreparation
from harness_llm.workspace import Workspace


def preparation_of(benchmark: Benchmark, workspace: Workspace, samples: int) -> Preparation:
    """The preparation that `benchmark` asks for; reference scores are those of the first `samples` prompts."""
    if benchmark.preparer == "demo":
        return DemoPreparation(benchmark, workspace, samples)
    if benchmark.preparer == "stand-in":
        return StandInPreparation(benchmark, workspace)
    return PublishedPreparation(benchmark, workspace)
