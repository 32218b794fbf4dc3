"""KV cache figures: what a run records of its replicas, and where a server's metrics page has them."""

import pytest

from harness_llm.config.servers import server_kinds
from harness_llm.protocol.kv_cache import KvCache, kv_cache_metrics, preemption_notes

pytest.importorskip("prometheus_client")

from harness_llm.replicas.engines.server_metrics import read_kv_cache

LARGE = KvCache(tokens=4096.0, blocks=256.0, block_size=16.0, max_concurrency=16.0, preemptions=2.0)
SMALL = KvCache(tokens=2048.0, blocks=128.0, block_size=16.0, max_concurrency=8.0, preemptions=0.0)
# As vLLM 0.30.0 writes it (vllm/v1/metrics/loggers.py), most labels left out.
PAGE = """# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",kv_cache_max_concurrency="8.0",kv_cache_size_tokens="2048",num_gpu_blocks="128"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_max_concurrency="9.0",kv_cache_size_tokens="2304",num_gpu_blocks="144"} 1.0
# HELP vllm:num_preemptions_total Cumulative number of preemption from the engine.
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="/models/m"} 3.0
vllm:num_preemptions_total{engine="1",model_name="/models/m"} 4.0
"""  # noqa: E501 - one line per sample
FIGURES = server_kinds()["vllm"].kv_cache


def after(cache: KvCache, preemptions: float | None) -> KvCache:
    return KvCache(
        tokens=cache.tokens,
        blocks=cache.blocks,
        block_size=cache.block_size,
        max_concurrency=cache.max_concurrency,
        preemptions=preemptions,
    )


def test_run_records_the_smallest_capacity_and_the_sum_of_preemptions() -> None:
    assert kv_cache_metrics([(LARGE, after(LARGE, 7.0)), (SMALL, after(SMALL, 1.0))]) == {
        "kv_cache_tokens": 2048.0,
        "kv_cache_blocks": 128.0,
        "kv_cache_block_size": 16.0,
        "kv_cache_max_concurrency": 8.0,
        "preemptions": 6.0,
    }


def test_figure_missing_from_one_replica_is_not_recorded() -> None:
    assert kv_cache_metrics([(SMALL, SMALL), (None, None)]) == {}
    assert kv_cache_metrics([]) == {}
    assert "preemptions" not in kv_cache_metrics([(SMALL, None), (SMALL, SMALL)])
    assert "preemptions" not in kv_cache_metrics([(LARGE, after(LARGE, 1.0))]), "the server was restarted"
    assert "kv_cache_tokens" not in kv_cache_metrics([(KvCache(preemptions=0.0), KvCache(preemptions=1.0))])


def test_preemptions_are_reported_with_the_setting_to_lower() -> None:
    [note] = preemption_notes({"preemptions": 1234.0, "kv_cache_tokens": 163840.0}, 1792)
    assert note.startswith("1,234 preemptions: the KV cache (163,840 tokens in each replica)")
    assert note.endswith("lower llm_config.max_num_seqs, now 1,792")
    assert preemption_notes({"preemptions": 0.0}, 8) == []
    assert preemption_notes({}, 8) == []


def test_figures_are_read_from_the_metrics_page_of_vllm() -> None:
    assert read_kv_cache(PAGE, FIGURES) == KvCache(
        tokens=2048.0, blocks=128.0, block_size=16.0, max_concurrency=8.0, preemptions=7.0
    )


@pytest.mark.parametrize("page", ["", 'vllm:cache_config_info{block_size="16",kv_cache_size_tokens="None"} 1.0\n'])
def test_figures_missing_from_the_metrics_page_are_none(page: str) -> None:
    assert read_kv_cache(page, FIGURES).tokens is None
    assert read_kv_cache(page, FIGURES).preemptions is None
