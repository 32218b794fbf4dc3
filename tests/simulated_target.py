"""Simulated systems with a known capacity, and the search of their target."""

import math
import random
from dataclasses import dataclass

from harness_llm.config.load import Load
from harness_llm.pipeline.tuning.search_steps import Confirm, Done, Goal, Latency, Measurement, Probe
from harness_llm.pipeline.tuning.target_search import next_target_trial

DURATION_S = 600.0


@dataclass
class System:
    """A system that is limited by TPOT, which rises smoothly, or by TTFT, which rises steeply at saturation.

    Attributes:
        noise: standard deviation of the logarithm of p99 latencies in a run of full length.
        failures: numbers of the trials that fail.
    """

    throughput: float
    limited_by: str
    noise: float = 0.0
    seed: int = 0
    predicts: bool = True
    failures: frozenset[int] = frozenset()

    def latencies(self, target: float) -> tuple[float, float]:
        """TTFT and TPOT divided by their limits in a run of full length."""
        load = target / self.throughput
        batch = min(load, 1)  # more queries wait: they do not slow a full batch
        tpot = 0.35 + 0.65 * (batch / 0.9) ** 1.5 if self.limited_by == "tpot" else 0.3 + 0.4 * batch
        queue = DURATION_S * max(1 - 1 / load, 0)
        return 0.05 + 0.02 * load / max(1 - load, 0.02) + queue, tpot

    @property
    def capacity(self) -> float:
        """The highest target within both limits."""
        low, high = 0.01 * self.throughput, 3 * self.throughput
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if max(self.latencies(middle)) < 1 else (low, middle)
        return low

    def measure(self, goal: Goal, step: Probe | Confirm, number: int) -> Measurement:
        """The trial of `step`; the engine's probe refuses a target far above the throughput."""
        rng = random.Random(f"{self.seed} {number}")  # noqa: S311
        full = isinstance(step, Confirm)
        seconds = goal.full_s(step.target, step.target) if isinstance(step, Confirm) else step.queries / step.target
        if number in self.failures:
            return Measurement(step.target, full, valid=False, seconds=5.0, failed=True)
        predicts = isinstance(step, Probe) and step.predict and self.predicts
        predicted = self.throughput * math.exp(rng.gauss(0, 0.05))
        if predicts and step.target > 1.15 * predicted:
            return Measurement(step.target, False, valid=False, seconds=30.0, throughput=predicted)
        saturated = step.target > self.throughput
        noise = self.noise * math.sqrt(DURATION_S / seconds)
        ttft, tpot = (value * math.exp(rng.gauss(0, noise)) for value in self.latencies(step.target))
        sd = max(noise, 0.01)
        return Measurement(
            step.target,
            full,
            valid=max(ttft, tpot) < 1,
            seconds=seconds,
            latencies=(Latency(ttft, sd, saturated), Latency(tpot, sd)),
            completion_s=15.0,
            throughput=self.throughput if saturated else predicted if predicts else 0.0,
            duration_s=seconds,
        )


def goal_of(target: float, budget_s: float = math.inf) -> Goal:
    return Goal(Load("Server", 24576, 24576, DURATION_S, target), budget_s, seats=2048)


def search(system: System, goal: Goal) -> tuple[Done, list[Measurement]]:
    trials: list[Measurement] = []
    while not isinstance(step := next_target_trial(goal, trials), Done):
        trials.append(system.measure(goal, step, len(trials)))
        assert len(trials) < 30
    return step, trials
