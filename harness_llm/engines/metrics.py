"""The counters of a server out of its metrics page."""

from collections.abc import Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families

from harness_llm.engines import Counters
from harness_llm.engines.counters import CACHE_HITS


def read_counters(text: str, names: Mapping[str, Sequence[str]]) -> Counters | None:
    """Sums of the counters in `text`, Prometheus' format, by what they count; None where cache hits are not told."""
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values[sample.name] = values.get(sample.name, 0.0) + sample.value
    if not any(name in values for name in names[CACHE_HITS]):
        return None
    return {what: sum(values.get(name, 0.0) for name in own) for what, own in names.items()}
