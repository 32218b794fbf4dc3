"""Lines at the end of a run."""

from pathlib import Path

import pytest
from runs import write_run

from harness_llm.config.rules.rounds import LatencyLimit
from harness_llm.pipeline.result_text import result_lines

LIMIT = LatencyLimit(ttft=2000, tpot=200)
SERVER = {
    "tokens_per_second": 732.98,
    "samples_per_second": 102.72,
    "duration_s": 20.07,
    "p99_ttft_ms": 6981.01,
    "p99_tpot_ms": 29.9,
    "kv_cache_tokens": 262144.0,
    "preemptions": 0.0,
}
SCORES = {"ROUGE1": 98.52, "TOKENS_PER_SAMPLE": 7.1, "GEN_NUM": 2048.0}
STATE = "Server performance: VALID, 733 tokens/s, 102.7 samples/s"
LATENCIES = "p99 TTFT 6,981 ms (limit 2,000), p99 TPOT 29.9 ms (limit 200)"
EVERY = "duration_s 20.07, p99_ttft_ms 6,981.01, p99_tpot_ms 29.90, kv_cache_tokens 262,144.00, preemptions 0.00"


@pytest.mark.parametrize("verbose", [False, True])
def test_state_throughput_and_latencies_are_first_and_other_metrics_only_verbose(tmp_path: Path, verbose: bool) -> None:
    run = write_run(tmp_path, "Server", "performance", metrics=SERVER)
    first, *others = result_lines(run, LIMIT, [], "", verbose=verbose)
    assert first == f"{STATE}, {LATENCIES}"
    assert others == ([f"  tokens_per_second 732.98, samples_per_second 102.72, {EVERY}"] if verbose else [])


def test_accuracy_has_the_scores_with_gates(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "accuracy", metrics=SCORES)
    scores = ("ROUGE1", "ROUGE2", "TOKENS_PER_SAMPLE")
    assert list(result_lines(run, None, scores, "", verbose=False)) == [
        "Offline accuracy: VALID, ROUGE1 98.52, TOKENS_PER_SAMPLE 7.10"
    ]


def test_causes_precede_reasons_and_notes_and_repeat_none(tmp_path: Path) -> None:
    run = write_run(
        tmp_path, "Offline", "accuracy", state="INVALID", reasons=["ROUGE1 fails", "other"], notes=["note"], metrics={}
    )
    cause = "  cause: accuracy gate missed: ROUGE1 fails"
    assert list(result_lines(run, None, (), cause, verbose=False)) == [
        "Offline accuracy: INVALID",
        cause,
        "  other",
        "  note",
    ]
