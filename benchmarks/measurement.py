"""What one arm did in one pair, and what all pairs say together. Pure arithmetic."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

WANTED = 0.98
RESAMPLES = 10_000


@dataclass(frozen=True)
class Measurement:
    """One arm over one load.

    Attributes:
        tokens: generated, end-of-sequence tokens included.
        seconds: wall time; LoadGen's own for the harness, that of LLM.generate for raw vLLM.
        engine_cpu_s: CPU time of the engine's process.
        idle_cpu_s: CPU time of the other arm's engine meanwhile; about 0, or the comparison is not fair.
        others_cores: cores that processes of neither arm kept busy meanwhile.
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
        """What the engine's process makes of a second of its core; neighbours disturb it less than the wall clock."""
        return self.tokens / self.engine_cpu_s


@dataclass(frozen=True)
class HarnessMeasurement(Measurement):
    """The harness over one load.

    Attributes:
        loadgen_cpu_s: CPU time of LoadGen's process, its start included.
        loadgen_start_s: from starting LoadGen's process until the load; without a probe.
    """

    loadgen_cpu_s: float
    loadgen_start_s: float


@dataclass(frozen=True)
class Pair:
    """Both arms over the same samples, one after the other."""

    harness: HarnessMeasurement
    raw: Measurement

    @property
    def ratio(self) -> float:
        """Tokens/s of the harness over those of raw vLLM."""
        return self.harness.tokens_per_second / self.raw.tokens_per_second

    @property
    def cpu_ratio(self) -> float:
        """The same per second of the engine's CPU time."""
        return self.harness.tokens_per_cpu_second / self.raw.tokens_per_cpu_second


def interval(values: Sequence[float]) -> dict[str, float]:
    """Median of `values`, and the 95 % interval of it by bootstrap."""
    drawn = np.random.default_rng(0).choice(values, (RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return {"median": statistics.median(values), "low": float(low), "high": float(high)}


def summary(pairs: Sequence[Pair]) -> dict[str, Any]:
    """All pairs, and the ratios over them."""
    return {
        "wanted": WANTED,
        "ratio": interval([pair.ratio for pair in pairs]),
        "cpu_ratio": interval([pair.cpu_ratio for pair in pairs]),
        "pairs": [asdict(pair) | {"ratio": pair.ratio, "cpu_ratio": pair.cpu_ratio} for pair in pairs],
    }
