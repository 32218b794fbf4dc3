"""Counters and KV cache figures from a server's metrics page, Prometheus' text format."""

import math
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from harness_llm.config.servers import Figure
from harness_llm.protocol.counters import CACHE_HITS, Counters
from harness_llm.protocol.kv_cache import KvCache


def _samples(text: str) -> Iterator[Sample]:
    return (sample for family in text_string_to_metric_families(text) for sample in family.samples)


def read_counters(text: str, names: Mapping[str, Sequence[str]]) -> Counters | None:
    """Sum the counters in `text`; None if they do not contain cache hits."""
    values: dict[str, float] = {}
    for sample in _samples(text):
        values[sample.name] = values.get(sample.name, 0.0) + sample.value
    if not any(name in values for name in names[CACHE_HITS]):
        return None
    return {what: sum(values.get(name, 0.0) for name in own) for what, own in names.items()}


def read_kv_cache(text: str, figures: Mapping[str, Figure]) -> KvCache:
    """Read the KV cache figures of the server's first engine, and the preemptions of all engines, from `text`."""
    samples = list(_samples(text))
    return KvCache(**{name: _value(samples, figure) for name, figure in figures.items()})


def _value(samples: Sequence[Sample], figure: Figure) -> float | None:
    """Return a label's value from the first sample, or the sum of a metric; None without a number."""
    own = [sample for sample in samples if sample.name == figure.metric]
    if not figure.label:
        return math.fsum(sample.value for sample in own) if own else None
    try:
        return float(own[0].labels[figure.label])
    except (IndexError, KeyError, ValueError):
        return None
