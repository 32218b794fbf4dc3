"""LoadGen's early stopping: how many queries of a run may exceed a latency limit (loadgen/early_stopping.cc). Pure.

A run of n queries meets a percentile with confidence 99 % if at most t of them exceed the limit, where t is the largest
number with P(Binomial(n, 1 - percentile) <= t) <= 1 %.
"""

import functools
import math

_CONFIDENCE = 0.99


@functools.cache
def allowed_over(queries: int, percentile: float = 0.99) -> int:
    """Return the number of `queries` that may exceed the limit; -1 if there are too few queries for any verdict."""
    over, share = -1, 1 - percentile
    log_odds = math.log(share / percentile)
    log_mass, total = queries * math.log(percentile), 0.0
    while (total := total + math.exp(log_mass)) <= 1 - _CONFIDENCE and over < queries:
        over += 1
        log_mass += math.log((queries - over) / (over + 1)) + log_odds
    return over


def required_quantile(queries: int, percentile: float = 0.99) -> float:
    """Return the quantile of the latencies of a run of `queries` that must be within the limit."""
    return 1 - max(allowed_over(queries, percentile), 0) / queries


def fewest_queries(over: int, percentile: float = 0.99) -> int:
    """Return the fewest queries of which `over` may exceed the limit."""
    low, high = over, 1
    while allowed_over(high, percentile) < over:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if allowed_over(middle, percentile) >= over else (middle, high)
    return high


FEWEST_QUERIES = {
    "Offline": 1,
    "Server": fewest_queries(over=1),
    "SingleStream": fewest_queries(over=1, percentile=0.9),
}
"""Queries of a run of which one may exceed the limit, by LoadGen's scenario; Offline has no limit."""
