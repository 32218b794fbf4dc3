"""What servers count of caching and speculation, and what follows from it. Pure."""

from collections.abc import Iterable

from harness_llm.engines import Counters

CACHE_HITS = "cache_hits"
_MEANINGS = {
    CACHE_HITS: "prompt tokens were taken from a cache",
    "speculated": "tokens were speculated",
}


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


def caching_departures(counted: Counters | None) -> list[str]:
    """Why a run that counted this is never closed.

    Every input query is computed in its entirety, without speculation (inference_rules.adoc, LLM rules); equal issue
    repeats prompts, so that a cache would fake the result.
    """
    if counted is None:
        return ["the server does not tell its cache hits, so that nothing proves that every prompt was computed"]
    return [f"{_MEANINGS[what]}: {count:,.0f} by the server's own count" for what, count in counted.items() if count]
