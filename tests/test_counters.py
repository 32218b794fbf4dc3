"""What proves that nothing was cached or speculated."""

import pytest

from harness_llm.config.servers import server_kinds
from harness_llm.protocol.counters import Counters, caching_violations, growth

pytest.importorskip("prometheus_client")

from harness_llm.replicas.engines.server_metrics import read_counters

PAGE = """# HELP vllm:prefix_cache_hits_total Prefix cache hits, in terms of number of cached tokens.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="/models/m"} 3.0
vllm:prefix_cache_hits_total{engine="1",model_name="/models/m"} 4.0
# TYPE vllm:prefix_cache_hits_created gauge
vllm:prefix_cache_hits_created{engine="0",model_name="/models/m"} 1.7e+09
# TYPE vllm:external_prefix_cache_hits_total counter
vllm:external_prefix_cache_hits_total{engine="0",model_name="/models/m"} 2.0
"""
DRAFTING = 'vllm:spec_decode_num_draft_tokens_total{engine="0"} 12\nvllm:spec_decode_num_drafts_total{engine="0"} 4\n'
SPECULATING = PAGE + DRAFTING
NAMES = server_kinds()["vllm"].counters


def test_counters_are_added_up() -> None:
    assert read_counters(PAGE, NAMES) == {"cache_hits": 9, "speculated": 0, "drafts": 0}
    assert read_counters(SPECULATING, NAMES) == {"cache_hits": 9, "speculated": 12, "drafts": 4}


@pytest.mark.parametrize("text", ["", "vllm:spec_decode_num_draft_tokens_total 0\n", "sglang:cached_tokens_total 1\n"])
def test_a_page_without_cache_hits_proves_nothing(text: str) -> None:
    assert read_counters(text, NAMES) is None


def test_growth_is_that_of_all_replicas() -> None:
    before: list[Counters | None] = [{"cache_hits": 5, "speculated": 1}, {"cache_hits": 0, "speculated": 0}]
    after: list[Counters | None] = [{"cache_hits": 7, "speculated": 1}, {"cache_hits": 1, "speculated": 0}]
    assert growth(zip(before, after, strict=True)) == {"cache_hits": 3, "speculated": 0}
    assert growth([({}, {}), ({}, {})]) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([None], [{"cache_hits": 0.0}]),
        ([{"cache_hits": 0.0}], [None]),
        ([{"cache_hits": 0.0}, None], [{"cache_hits": 0.0}, None]),
        ([{"cache_hits": 5.0}], [{"cache_hits": 0.0}]),
    ],
)
def test_growth_that_nobody_knows(before: list[Counters | None], after: list[Counters | None]) -> None:
    assert growth(zip(before, after, strict=True)) is None


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        ({}, []),
        ({"cache_hits": 0.0, "speculated": 0.0}, []),
        ({"cache_hits": 1234.0, "speculated": 0.0}, ["prompt tokens were taken from a cache: 1,234"]),
        ({"cache_hits": 0.0, "speculated": 2.0}, ["tokens were speculated: 2"]),
        (None, ["no cache hits in the server's metrics"]),
    ],
)
def test_what_bars_a_run_from_closed(counted: Counters | None, words: list[str]) -> None:
    found = caching_violations(counted)
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("counted", "words"),
    [
        ({"speculated": 12.0, "drafts": 4.0}, []),
        ({"cache_hits": 0.0, "speculated": 10.0, "drafts": 4.0}, []),  # the last of an answer are fewer
        ({"speculated": 13.0, "drafts": 4.0}, ["13 tokens were speculated in 4 drafts"]),
        ({"cache_hits": 1.0, "speculated": 12.0, "drafts": 4.0}, ["prompt tokens were taken from a cache: 1"]),
        ({"cache_hits": 0.0, "speculated": 12.0}, ["no draft count in the server's metrics"]),
        (None, ["no cache hits in the server's metrics"]),
    ],
)
def test_what_bars_a_run_that_may_speculate_three_tokens(counted: Counters | None, words: list[str]) -> None:
    found = caching_violations(counted, draft_tokens=3)
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))
