"""Counters of prefix caching and speculative decoding, and the violations that they show. Pure."""

from collections.abc import Iterable

Counters = dict[str, float]
"""Counters of an engine since its start: prompt tokens from a cache, draft tokens, drafts."""

CACHE_HITS, SPECULATED, DRAFTS = "cache_hits", "speculated", "drafts"
_BY = "by the engine's own count"


def growth(readings: Iterable[tuple[Counters | None, Counters | None]]) -> Counters | None:
    """Sum the increase of the counters of all replicas; None if one replica has no reading or a counter decreased.

    A counter decreases when its engine was restarted.
    """
    total: Counters = {}
    for old, new in readings:
        if old is None or new is None or any(new[what] < count for what, count in old.items()):
            return None
        for what, count in new.items():
            total[what] = total.get(what, 0.0) + count - old[what]
    return total


def caching_violations(counted: Counters | None, draft_tokens: int = 0) -> list[str]:
    """Return the violations of the closed division that the counters of a run show.

    Every input query is computed in its entirety (inference_rules.adoc, LLM rules); equal issue repeats prompts, so
    that a prefix cache would inflate the result.

    Args:
        draft_tokens: per step, where the rules allow speculative decoding.
    """
    if counted is None:
        return ["no cache hits in the server's metrics, so that there is no proof that every prompt was computed"]
    hits = counted.get(CACHE_HITS)
    found = [f"prompt tokens were taken from a cache: {hits:,.0f} {_BY}"] if hits else []
    return found + _speculation_violations(counted, draft_tokens)


def _speculation_violations(counted: Counters, draft_tokens: int) -> list[str]:
    """Draft tokens that are not allowed or too many per draft (inference_rules.adoc, Speculative Decoding)."""
    speculated, drafts = counted.get(SPECULATED, 0.0), counted.get(DRAFTS)
    if not draft_tokens:
        return [f"tokens were speculated: {speculated:,.0f} {_BY}"] if speculated else []
    if drafts is None:
        return ["no draft count in the server's metrics, so that the tokens per draft are unknown"]
    if speculated <= draft_tokens * drafts:
        return []
    return [f"{speculated:,.0f} tokens were speculated in {drafts:,.0f} drafts {_BY}, more than {draft_tokens} in each"]
