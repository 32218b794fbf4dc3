"""Measurements of one arm in one pair, and the summary of all pairs. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

RESAMPLES = 10_000


@dataclass(frozen=True)
class Measurement:
    """Measurement of one arm.

    Attributes:
        tokens: generated, end-of-sequence tokens included.
        seconds: wall time; LoadGen's own for the harness, that of LLM.generate for raw vLLM.
        engine_cpu_s: CPU time of the engine's process.
        idle_cpu_s: CPU time of the other arm's engine meanwhile; must be about 0 for a fair comparison.
        others_cores: cores used by other processes meanwhile.
    """

    samples: int
    tokens: int
    seconds: float
    tokens_per_second: float
    engine_cpu_s: float
    idle_cpu_s: float
    others_cores: float

    @property
    def tokens_per_cpu_second(self) -> float:
        """Tokens per second of the engine's CPU time, which other processes affect less than wall time."""
        return self.tokens / self.engine_cpu_s


@dataclass(frozen=True)
class HarnessMeasurement(Measurement):
    """Measurement of the harness.

    Attributes:
        loadgen_cpu_s: CPU time of LoadGen's process, its start included.
        loadgen_start_s: from the start of LoadGen's process to the first query; without a probe.
    """

    loadgen_cpu_s: float
    loadgen_start_s: float


@dataclass(frozen=True)
class Pair:
    """Measurements of both arms over the same samples, one after the other."""

    harness: HarnessMeasurement
    reference: Measurement

    @property
    def ratio(self) -> float:
        """Tokens/s of the harness divided by those of the reference."""
        return self.harness.tokens_per_second / self.reference.tokens_per_second

    @property
    def cpu_ratio(self) -> float:
        """Ratio of tokens per second of the engine's CPU time."""
        return self.harness.tokens_per_cpu_second / self.reference.tokens_per_cpu_second


def interval(values: Sequence[float]) -> dict[str, float]:
    """Return the median of `values` with its 95 % bootstrap interval."""
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {"median": statistics.median(values), "low": float(low), "high": float(high)}


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return all pairs and the intervals of their ratios."""
    return {
        "ratio": interval([pair.ratio for pair in pairs]),
        "cpu_ratio": interval([pair.cpu_ratio for pair in pairs]),
        "pairs": [asdict(pair) | {"ratio": pair.ratio, "cpu_ratio": pair.cpu_ratio} for pair in pairs],
    }
