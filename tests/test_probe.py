"""The probe on simulated replicas of every shipped configuration."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import probe as simulated
from harness_llm.loadgen.prediction import MEAN_AGE
from harness_llm.loadgen.probe import Unmeasured, contexts

CASES = {f"{case.benchmark} {case.gpu} {case.scenario}": case for case in simulated.cases()}
LLAMA = CASES["llama2-70b mi300x Offline"]
# Large and small batches, short and long prompts and answers.
EXAMPLES = [
    "llama2-70b mi300x Offline",
    "llama3.1-405b h200 Server",
    "llama3.1-8b h200 Server",
    "gpt-oss-120b h200 Interactive",
]


@pytest.mark.parametrize("name", CASES)
def test_probe_takes_less_than_60_s(name: str) -> None:
    case = CASES[name]
    _, load_s, drain_s = simulated.predict(case, case.engine)
    assert load_s + drain_s < 60


@pytest.mark.parametrize("overlapped", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_prediction_equals_the_steady_state(name: str, overlapped: bool) -> None:
    case = CASES[name]
    found = simulated.probe(case, replace(case.engine, overlapped=overlapped))
    assert abs(found.error) < 0.06
    assert found.within


def test_too_slow_replica_has_no_prediction() -> None:
    slow = replace(LLAMA.engine, token_s=LLAMA.engine.token_s * 20)
    with pytest.raises(Unmeasured, match="45 s"):
        simulated.predict(LLAMA, slow)


def test_prompts_are_extended_to_the_contexts_of_steady_state() -> None:
    prompts = [np.arange(length, dtype=np.int32) for length in (5, 100, 300) * 100]
    found = contexts(prompts, LLAMA.spec)
    added = [len(after) - len(before) for before, after in zip(prompts, found, strict=True)]
    assert np.mean(added) == pytest.approx(MEAN_AGE * LLAMA.spec.output.mean, rel=0.05)
    assert all((after[: len(before)] == before).all() for before, after in zip(prompts, found, strict=True))
    assert max(map(len, found)) <= LLAMA.spec.max_model_len - LLAMA.spec.tokens


def test_prompts_and_running_sequences_share_the_tokens_of_a_step() -> None:
    spec = CASES["llama3.1-8b h200 Server"].spec
    assert spec.batch == 2048
    assert spec.work(778).batch == int(spec.step_tokens / (1 + 778 / 128)) < 300
    assert LLAMA.spec.work(294).batch == LLAMA.spec.batch
