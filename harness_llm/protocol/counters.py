"""What servers count of caching and speculation, and what follows from it. Pure."""

from collections.abc import Iterable

Counters = dict[str, float]
"""Counts of an engine since its start: tokens taken from a cache, tokens speculated."""

CACHE_HITS, SPECULATED, DRAFTS = "cache_hits", "speculated", "drafts"
_BY = "by the engine's own count"


def growth(looks: Iterable[tuple[Counters | None, Counters | None]]) -> Counters | None:
    """What was counted between two looks at each replica; None where one of them could not tell.

    A counter that fell was started anew in between, so that nothing is known of it.
    """
    total: Counters = {}
    for old, new in looks:
        if old is None or new is None or any(new[what] < count for what, count in old.items()):
            return None
        for what, count in new.items():
            total[what] = total.get(what, 0.0) + count - old[what]
    return total


def caching_violations(counted: Counters | None, draft_tokens: int = 0) -> list[str]:
    """Why a run that counted this is never closed.

    Every input query is computed in its entirety (inference_rules.adoc, LLM rules); equal issue repeats prompts, so
    that a cache would fake the result.

    Args:
        draft_tokens: of a step, where the rules allow the run to speculate.
    """
    if counted is None:
        return ["the server does not tell its cache hits, so that nothing proves that every prompt was computed"]
    hits = counted.get(CACHE_HITS)
    found = [f"prompt tokens were taken from a cache: {hits:,.0f} {_BY}"] if hits else []
    return found + _speculation_violations(counted, draft_tokens)


def _speculation_violations(counted: Counters, draft_tokens: int) -> list[str]:
    """Speculation that is not allowed, or with more tokens a draft (inference_rules.adoc, Speculative Decoding)."""
    speculated, drafts = counted.get(SPECULATED, 0.0), counted.get(DRAFTS)
    if not draft_tokens:
        return [f"tokens were speculated: {speculated:,.0f} {_BY}"] if speculated else []
    if drafts is None:
        return ["the server does not tell its drafts, so that the tokens of each are unknown"]
    if speculated <= draft_tokens * drafts:
        return []
    return [f"{speculated:,.0f} tokens were speculated in {drafts:,.0f} drafts {_BY}, more than {draft_tokens} in each"]
