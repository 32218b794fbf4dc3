"""Quantiles of Student's t distribution."""

import math
from statistics import NormalDist

_NORMAL_FROM = 1000  # degrees of freedom at which the normal quantile differs by less than 0.3 %
_BISECTIONS = 80
_ROUNDING = 1e-9


def two_sided_quantile(confidence: float, freedom: float) -> float:
    """The t with P(abs(T) <= t) = `confidence`; fractional degrees of freedom are rounded down, which widens intervals.

    Raises:
        ValueError: less than one degree of freedom.
    """
    whole = math.floor(freedom * (1 + _ROUNDING))
    if whole < 1:
        raise ValueError(f"degrees of freedom: {freedom}")
    if whole >= _NORMAL_FROM:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = 0.0, math.pi / 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if _probability(middle, whole) < confidence else (low, middle)
    return math.tan(low) * math.sqrt(whole)


def _probability(angle: float, freedom: int) -> float:
    """P(abs(T) <= sqrt(freedom) tan(angle)): Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3-4."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
