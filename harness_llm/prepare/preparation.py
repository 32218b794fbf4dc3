"""Choose the preparation of a benchmark: demo, stand-in or published."""

from harness_llm.config.assets import Preparation
from harness_llm.config.benchmark import Benchmark
from harness_llm.paths import Workspace
from harness_llm.prepare.demo.stages import DemoPreparation
from harness_llm.prepare.demo.stand_in import StandInPreparation
from harness_llm.prepare.published import PublishedPreparation


def preparation_of(benchmark: Benchmark, workspace: Workspace, samples: int) -> Preparation:
    """Return the preparation of `benchmark`; the demo's reference scores cover the first `samples` prompts."""
    if benchmark.preparer == "demo":
        return DemoPreparation(benchmark, workspace, samples)
    if benchmark.preparer == "stand-in":
        return StandInPreparation(benchmark, workspace)
    return PublishedPreparation(benchmark, workspace)
