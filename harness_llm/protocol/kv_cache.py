"""KV cache of an engine: capacity and preemptions, and the metrics of a run. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

CAPACITY = ("tokens", "blocks", "block_size", "max_concurrency")
PREEMPTIONS = "preemptions"
METRICS = (*(f"kv_cache_{name}" for name in CAPACITY), PREEMPTIONS)
"""Names of the metrics of a run."""


class KvCache(msgspec.Struct, frozen=True, kw_only=True):
    """KV cache of one engine; None for a figure that the engine does not report.

    Attributes:
        tokens: capacity in tokens.
        blocks: number of blocks on the accelerator, vLLM's num_gpu_blocks.
        block_size: tokens per block.
        max_concurrency: sequences of max_model_len tokens that fit at once, as vLLM computes it.
        preemptions: sequences that were preempted since the engine started; vLLM computes each again.
    """

    tokens: float | None = None
    blocks: float | None = None
    block_size: float | None = None
    max_concurrency: float | None = None
    preemptions: float | None = None


Pairs = Sequence[tuple[KvCache | None, KvCache | None]]
"""The KV cache of each replica before and after a run; None where an engine reports none or has failed."""


def kv_cache_metrics(readings: Pairs) -> dict[str, float]:
    """Return the capacity of the smallest KV cache and the preemptions of all replicas.

    A metric that one replica does not report is absent.
    """
    metrics: dict[str, float] = {}
    begun = [before for before, _ in readings if before and before.tokens is not None]
    if begun and len(begun) == len(readings):
        smallest = msgspec.structs.asdict(min(begun, key=lambda cache: cache.tokens or 0))
        metrics = {f"kv_cache_{name}": smallest[name] for name in CAPACITY if smallest[name] is not None}
    preempted = [_growth(before, after) for before, after in readings]
    known = [count for count in preempted if count is not None]
    if known and len(known) == len(preempted):
        metrics[PREEMPTIONS] = sum(known)
    return metrics


def _growth(before: KvCache | None, after: KvCache | None) -> float | None:
    """Return the preemptions between two readings; None if one is missing or the server was restarted in between."""
    if before is None or after is None or before.preemptions is None or after.preemptions is None:
        return None
    count = after.preemptions - before.preemptions
    return count if count >= 0 else None


def preemption_notes(metrics: Mapping[str, float], max_num_seqs: int) -> list[str]:
    """Return a note that names the setting to lower, if sequences were preempted."""
    count = metrics.get(PREEMPTIONS)
    if not count:
        return []
    tokens = metrics.get("kv_cache_tokens")
    capacity = f" ({tokens:,.0f} tokens in each replica)" if tokens else ""
    what = f"{count:,.0f} preemptions: the KV cache{capacity} is too small for the sequences that ran at once"
    return [f"{what}, and each was computed again; lower llm_config.max_num_seqs, now {max_num_seqs:,}"]
