from pathlib import Path

import numpy as np
import pytest
from golden import GOLDEN, UNTRIMMED, untrimmed

from harness_llm.config.rules.rounds import load_round
from harness_llm.errors import ConfigError
from harness_llm.evaluate.compliance.test06 import verify
from harness_llm.loadgen.logs import Answer, read_accuracy_log

LOG = "TEST06/accuracy/mlperf_log_accuracy.json"
PUBLISHED_LOGS = [
    *sorted(GOLDEN.rglob(LOG)),
    *(pytest.param(log, marks=untrimmed) for log in sorted(UNTRIMMED.rglob(LOG))),
]
EOS = {2, 128009}
RULES = load_round("v6.1")


def answer(ids: list[int], first: list[int] | None = None, claimed: int | None = None, index: int = 7) -> Answer:
    return Answer(
        seq_id=0,
        qsl_idx=index,
        ids=np.array(ids, dtype=np.int32),
        token_count=len(ids) if claimed is None else claimed,
        first=None if first is None else np.array(first, dtype=np.int32),
    )


@pytest.mark.parametrize(
    ("entry", "fault", "failed"),
    [
        (answer([5, 6, 2], [5]), None, None),
        (answer([5, 6, 128009], [5, 6]), None, None),
        (answer([5, 6], [5]), None, None),
        (answer([5, 6, 2, 2], [5]), "end-of-sequence ids at [2, 3] of 4 tokens", "eos"),
        (answer([5, 2, 128009], [5]), "end-of-sequence ids at [1, 2] of 3 tokens", "eos"),
        (answer([5, 2, 6], [5]), "end-of-sequence ids at [1] of 3 tokens", "eos"),
        (answer([2, 2], [2]), "end-of-sequence ids at [0, 1] of 2 tokens", "eos"),
        (answer([5, 6], [6]), "reported first token [6], but the answer begins with [5]", "first_token"),
        (answer([5], [5, 6]), "reported first token [5, 6], but the answer begins with [5]", "first_token"),
        (answer([5, 6], []), "no reported first token", "first_token"),
        (answer([5, 6]), "no reported first token", "first_token"),
        (answer([5, 6], [5], claimed=3), "3 reported tokens, but the answer has 2", "length"),
    ],
)
def test_each_fault_fails_its_check_and_names_the_sample(entry: Answer, fault: str | None, failed: str | None) -> None:
    verdict = verify([answer([5, 6], [5], index=1), entry], "Server", EOS)
    assert {name for name in ("first_token", "eos", "length") if getattr(verdict, name) is False} == (
        {failed} if failed else set()
    )
    assert verdict.passed is (failed is None)
    if fault:
        assert len(verdict.failures) == 1
        assert verdict.failures[0].startswith("sample 7: ")
        assert fault in verdict.failures[0]
    else:
        assert verdict.failures == []


def test_offline_skips_the_first_token_check() -> None:
    verdict = verify([answer([5, 6])], "Offline", EOS)
    assert (verdict.first_token, verdict.passed) == (None, True)
    assert verdict.render() == (
        "First token check pass: Skipped\n"
        "EOS check pass: True\n"
        "Sample length check pass: True\n"
        "TEST06 verification complete\n"
    )


def test_failed_verdict_is_rendered() -> None:
    assert verify([answer([5, 2, 2], [6], claimed=1)], "Interactive", EOS).render() == (
        "First token check pass: False\n"
        "EOS check pass: False\n"
        "Sample length check pass: False\n"
        "TEST06 verification failed\n"
    )


def test_empty_log_is_refused() -> None:
    with pytest.raises(ConfigError, match="no answers in the log") as caught:
        verify([], "Offline", EOS, "a log")
    assert caught.value.where == "a log"


@pytest.mark.parametrize("path", PUBLISHED_LOGS, ids=lambda p: "-".join(p.parts[-8:-3]))
def test_published_logs_pass_with_the_published_verdict(path: Path) -> None:
    scenario = path.parents[2].name
    verdict = verify(read_accuracy_log(path), scenario, RULES.benchmark("llama2-70b-99.9").eos_ids)
    assert verdict.failures == []
    assert (
        verdict.render().splitlines()
        == (path.parents[1] / RULES.compliance["TEST06"].verdict).read_text().strip().splitlines()
    )
