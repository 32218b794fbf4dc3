"""Tuning sessions for tests; as a program, appends trials to a session, or continues its search, until it is killed."""

import datetime as dt
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.engine_config import EngineConfig, load_config
from harness_llm.paths import Workspace
from harness_llm.pipeline.tuning.engine_search import EngineSearch, Outcome, Step
from harness_llm.pipeline.tuning.engine_tuning import run_search
from harness_llm.pipeline.tuning.search_space import SearchSpace, Settings, load_space
from harness_llm.runs.trial_store import Session, Trial, TrialStore, open_session

SESSION = Session(
    benchmark="demo",
    scenario="Offline",
    system_name="box",
    gpu="cpu",
    what="engine",
    fingerprint="a1",
    command="harness-llm tune",
    started=dt.datetime(2026, 7, 1, 13, tzinfo=dt.UTC),
)
SEQS, TOKENS = "llm_config.max_num_seqs", "llm_config.max_num_batched_tokens"
NOISE = 0.004


def trial(number: int, **values: Any) -> Trial:
    facts: dict[str, Any] = {
        "kind": "engine",
        "scenario": "Server",
        "state": "VALID",
        "seconds": 9.5,
        "throughput": 80.0,
    }
    return Trial(number=number, **facts | values)


def settings_of(benchmark: str, scenario: str, gpu: str) -> EngineConfig:
    workspace = Workspace()
    return load_config(load_benchmark(benchmark, workspace), scenario, gpu, (), workspace)


def demo_space(scenario: str = "Offline") -> SearchSpace:
    return load_space("vllm", settings_of("demo", scenario, "cpu"), scenario, accelerated=False)


def best_at_256(settings: Settings) -> float:
    """Speed of an engine that has its maximum at 256 sequences and 8192 tokens: 1.186 of the shipped one."""
    far = (
        abs(math.log2(float(settings.get(SEQS) or 128) / 256)),
        abs(math.log2(float(settings.get(TOKENS) or 4096) / 8192)),
    )
    return float(np.exp(-0.12 * far[0] - 0.05 * far[1]))


def no_differences(_: Settings) -> float:
    return 1.0


@dataclass
class Simulated:
    """Trials of an engine with a known speed; the noise depends on the trial's number only.

    Attributes:
        broken: settings whose engine does not start.
        failing: numbers of the trials whose engine does not start.
        pause_s: real time of a trial.
    """

    speed: Callable[[Settings], float] = best_at_256
    broken: Callable[[Settings], bool] = lambda _: False
    failing: frozenset[int] = frozenset()
    noise: float = NOISE
    pause_s: float = 0.0
    made: list[Settings] = field(default_factory=list)

    def measure(self, number: int, step: Step) -> Trial:
        time.sleep(self.pause_s)
        self.made.append(step.settings)
        settings = dict(step.settings)
        if number in self.failing or self.broken(step.settings):
            return trial(number, settings=settings, state="FAILED", throughput=None, reason="CUDA out of memory")
        luck = np.random.default_rng(number).normal(0, self.noise)
        return trial(number, settings=settings, throughput=500 * self.speed(step.settings) * math.exp(luck))


def search(root: Path, probes: Simulated, budget_s: float = math.inf) -> tuple[TrialStore, Outcome]:
    """Search in the session below `root`, or continue it."""
    store = open_session(root, SESSION)
    return store, run_search(EngineSearch(demo_space(), lambda _: "", budget_s), store, probes, lambda _: None)


def append(folder: Path) -> None:
    store = TrialStore(folder)
    while True:
        store.append(trial(store.next_number, reason="x" * 2000))


if __name__ == "__main__":
    if sys.argv[1] == "append":
        append(Path(sys.argv[2]))
    search(Path(sys.argv[2]), Simulated(pause_s=0.01))
