"""Prediction from measurements of a replica whose step model is known."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks import probe as simulated
from harness_llm.config.load import Load, issued, seconds
from harness_llm.errors import GateFailed
from harness_llm.loadgen.prediction import (
    MEAN_AGE,
    Measured,
    OutputTokens,
    Prediction,
    Work,
    cost,
    judge_prediction,
    predict,
)
from harness_llm.loadgen.probe import Unmeasured, contexts

WEIGHTS_S, TOKEN_S, CONTEXT_S = 0.02, 1e-4, 4e-8
WORK = Work(prompt_tokens=300, output=OutputTokens(180, 200, 220), batch=1000)
PROBED, SHORT_CONTEXT, STEPS = 400, 40, 100


def step_s(batch: float, context: float) -> float:
    return WEIGHTS_S + TOKEN_S * batch + CONTEXT_S * batch * context


def measured(batch: int = PROBED) -> Measured:
    context = WORK.context
    tokens = int(batch * context)
    return Measured(
        fill_s=STEPS * step_s(batch / 2, context) + TOKEN_S * tokens,
        fill_tokens=tokens,
        fill_steps=STEPS,
        batch=batch,
        context=context,
        step_s=step_s(batch, context),
        short_steps_s={n: step_s(n, SHORT_CONTEXT) for n in (batch // 2, batch, WORK.batch)},
    )


def test_cost_equals_that_of_the_steady_state() -> None:
    steady = WORK.output.mean * step_s(WORK.batch, WORK.context) / WORK.batch + WORK.prompt_tokens * TOKEN_S
    found = cost(measured(), WORK)
    assert found.mean == pytest.approx(steady, rel=0.02)
    assert found.low < found.mean < found.high


def test_probe_of_the_full_batch_gives_the_same_prediction() -> None:
    assert cost(measured(WORK.batch), WORK).mean == pytest.approx(cost(measured(), WORK).mean, rel=0.02)


def test_longer_contexts_cost_more() -> None:
    short = replace(measured(), step_s=measured().short_step_s(PROBED))
    assert cost(short, WORK).mean < cost(measured(), WORK).mean


def test_prompts_hidden_behind_memory_reads_are_within_the_bounds() -> None:
    """Interactive: a small batch, in which computing a prompt may add no time to a step."""
    work = replace(WORK, batch=32)
    small = replace(measured(32), short_steps_s={n: step_s(n, SHORT_CONTEXT) for n in (16, 32)})
    hidden = work.output.mean * step_s(32, work.context) / 32
    assert cost(small, work).low <= hidden <= cost(small, work).mean


def test_rates_are_summed_over_replicas_within_bounds() -> None:
    one, two = predict([measured()], WORK, 1024), predict([measured()] * 2, WORK, 1024)
    assert two.samples_per_second == pytest.approx(2 * one.samples_per_second)
    assert one.tokens_per_second == pytest.approx(one.samples_per_second * 200)
    exact = replace(WORK, output=OutputTokens(200, 200, 200))
    assert predict([measured()], exact, 1024).low > one.low
    assert predict([measured()], exact, 1024).high < one.high


def test_tail_is_the_longest_answer() -> None:
    assert predict([measured()], WORK, 1024).tail_s == pytest.approx(1024 * WEIGHTS_S, rel=0.01)
    long = predict([measured()], WORK, 20_000)
    assert long.tail_s == pytest.approx(20_000 * WEIGHTS_S, rel=0.01)
    assert long.likely_tail_s == pytest.approx(8 * WORK.output.mean * WEIGHTS_S, rel=0.01)


def test_replicas_of_unequal_speed_are_predicted() -> None:
    slow = replace(
        measured(),
        fill_s=measured().fill_s * 2,
        step_s=measured().step_s * 2,
        short_steps_s={n: 2 * s for n, s in measured().short_steps_s.items()},
    )
    one = predict([measured()], WORK, 1024).samples_per_second
    assert predict([measured(), slow], WORK, 1024).samples_per_second == pytest.approx(1.5 * one, rel=0.01)


# Targets against the prediction


SAMPLES = 24576
KEY = "llama2-70b.Server.target_qps"


def load(scenario: str, qps: float = 100, latency_s: float = 0.02) -> Load:
    return Load(scenario, SAMPLES, SAMPLES, 600, qps, latency_s)


def prediction(rate: float, *, within: float = 0.1, tail_s: float = 0) -> Prediction:
    return Prediction(
        samples_per_second=rate,
        low=rate * (1 - within),
        high=rate * (1 + within),
        tokens_per_second=rate * 294,
        tail_s=tail_s,
        likely_tail_s=tail_s,
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (load("Server"), prediction(101)),
        (load("Server"), prediction(92)),  # within the bounds
        (load("Offline"), prediction(100)),
        (load("Offline"), prediction(130)),  # 73,728 samples in 567 s, and in 630 s at the lower bound
        (load("Offline"), prediction(1)),
        (load("SingleStream"), prediction(45)),
    ],
)
def test_target_within_the_bounds_is_accepted(given: Load, found: Prediction) -> None:
    judge_prediction(given, found, KEY)


def test_server_target_above_the_bounds_is_refused() -> None:
    with pytest.raises(GateFailed, match="above the throughput") as caught:
        judge_prediction(load("Server", 100), prediction(50), KEY)
    assert caught.value.where == KEY
    assert caught.value.expected == "at most 55 queries/s"
    assert caught.value.found == "100 queries/s, predicted throughput 50 samples/s (45 to 55)"
    assert caught.value.hint == f"set {KEY} = 40"
    assert caught.value.exit_code == 1
    judge_prediction(load("Server", 40), prediction(50), KEY)


def test_offline_target_with_a_too_short_run_is_refused() -> None:
    with pytest.raises(GateFailed, match="shorter than min_duration") as caught:
        judge_prediction(load("Offline", 100), prediction(500), "x.Offline.target_qps")
    assert caught.value.expected == "at least 600 s"
    assert caught.value.found == ("at most 164 s: 73728 samples, predicted throughput 500 samples/s (450 to 550)")
    assert caught.value.hint == "set x.Offline.target_qps = 550"


def test_long_last_answer_extends_the_duration() -> None:
    given, found = load("Offline", 100), prediction(140)
    with pytest.raises(GateFailed):
        judge_prediction(given, found, KEY)
    judge_prediction(given, prediction(140, tail_s=20), KEY)


@pytest.mark.parametrize(
    ("scenario", "rate"),
    [("Offline", 0.9), ("Offline", 500), ("Offline", 1e6), ("SingleStream", 130), ("SingleStream", 3000)],
)
def test_advised_target_runs_long_enough(scenario: str, rate: float) -> None:
    given = Load(scenario, 100, 100, 600, target_qps=0.01, target_latency_s=10)
    with pytest.raises(GateFailed) as caught:
        judge_prediction(given, prediction(rate), "key")
    value = float(caught.value.hint.rpartition("= ")[2])
    advised = Load(scenario, 100, 100, 600, value, value / 1000)
    assert seconds(advised, "performance", rate) >= 600
    assert issued(advised, "performance") < 3 * 600 * rate + 200


# The probe on simulated replicas of every shipped configuration


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
    assert spec.work(778).batch == int(spec.step_tokens / (1 + 778 / 128)) < 300 < spec.batch
    assert LLAMA.spec.work(294).batch == LLAMA.spec.batch
