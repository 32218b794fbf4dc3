"""Verdict of a comparison: faster, slower, no difference beyond noise, or inconclusive. Pure functions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harness_llm.analysis.compare import Basis, Comparison, Figure
from harness_llm.analysis.interval import CONFIDENCE, FEWEST_RUNS, Interval
from harness_llm.errors import ConfigError

SLOWER_CODE, INCONCLUSIVE_CODE = 1, 3
"""Exit codes of --fail-if-slower."""
_RATES = ("tokens_per_second", "samples_per_second")
_STEP_TIME = "p50_tpot_ms"


class Judgement(StrEnum):
    """How the speed of B differs from that of A."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference beyond noise"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Verdict:
    """The judgement by one figure.

    Attributes:
        speed: B's speed / A's, with its interval; the inverse of the ratio if the figure is a latency.
        reason: why it is inconclusive.
    """

    name: str
    judgement: Judgement
    speed: float | None
    interval: Interval | None
    reason: str = ""

    def __str__(self) -> str:
        text = f"{self.judgement}: {self.name}"
        if self.speed is not None:
            text += f", speed {_change(self.speed)}"
        if self.interval:
            low, high = _change(self.interval.low), _change(self.interval.high)
            text += f" ({CONFIDENCE:.0%} interval {low} to {high})"
        return text + (f"; {self.reason}" if self.reason else "")


def _change(ratio: float) -> str:
    return f"{(ratio - 1) * 100:+.2f} %"


def verdicts(comparison: Comparison) -> list[Verdict]:
    """By throughput; in scenarios with token latencies by the median TPOT too, as arrivals fix the throughput there."""
    rate = next((name for name in _RATES if name in comparison.figures), "")
    names = [name for name in (rate, _STEP_TIME) if name in comparison.figures]
    return [_verdict(name, comparison.figures[name], comparison) for name in names]


def _verdict(name: str, figure: Figure, comparison: Comparison) -> Verdict:
    inverse = name.endswith("_ms")
    interval = figure.interval.inverse if figure.interval and inverse else figure.interval
    ratio = figure.ratio or None
    speed = 1 / ratio if ratio and inverse else ratio
    if figure.basis is Basis.RUNS and interval:
        return Verdict(name, _judgement(interval), speed, interval)
    return Verdict(name, Judgement.INCONCLUSIVE, speed, interval, _obstacle(figure, comparison))


def _judgement(interval: Interval) -> Judgement:
    if interval.low > 1:
        return Judgement.FASTER
    return Judgement.SLOWER if interval.high < 1 else Judgement.SAME


def _obstacle(figure: Figure, comparison: Comparison) -> str:
    counts = comparison.counts
    text = f"A has {counts.a} and B {counts.b} of the {FEWEST_RUNS} runs needed on each side"
    if figure.basis is Basis.BLOCKS:
        return f"{text}; the interval has the {Basis.BLOCKS}"
    sides = [side for side, missing in (("A", comparison.unrecorded.a), ("B", comparison.unrecorded.b)) if missing]
    missing = f"{' and '.join(sides)}: no queries.parquet, or too short a run" if sides else "a figure is missing"
    return f"{text}; no interval within the runs ({missing})"


def parse_share(text: str) -> float:
    """Read a percentage, such as 2%.

    Raises:
        ConfigError: it is none from 0% to below 100%.
    """
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = math.nan
    if not text.endswith("%") or not 0 <= share < 1:
        raise ConfigError("invalid --fail-if-slower", expected="a percentage below 100, such as 2%", found=text)
    return share


def gate(found: Mapping[str, Iterable[Verdict]], share: float) -> tuple[int, list[str]]:
    """The exit code of --fail-if-slower, and a line per figure that does not pass.

    A figure fails if its whole interval is slower by more than `share`, and passes if none of it is. Otherwise, and
    without enough runs, it is inconclusive.
    """
    codes, lines = {0}, []
    for scenario, own in found.items():
        judged = [(_code(verdict, share), verdict) for verdict in own]
        if not judged:
            lines.append(f"inconclusive: {scenario}: no performance runs on both sides")
            codes.add(INCONCLUSIVE_CODE)
        for code, verdict in judged:
            codes.add(code)
            if code:
                words = "slower by more than" if code == SLOWER_CODE else "inconclusive whether slower by more than"
                lines.append(f"{words} {share * 100:g} %: {scenario}: {verdict}")
    return SLOWER_CODE if SLOWER_CODE in codes else max(codes), lines


def _code(verdict: Verdict, share: float) -> int:
    if verdict.judgement is Judgement.INCONCLUSIVE or not verdict.interval:
        return INCONCLUSIVE_CODE
    if verdict.interval.high < 1 - share:
        return SLOWER_CODE
    return 0 if verdict.interval.low >= 1 - share else INCONCLUSIVE_CODE
