"""Prediction from measurements of a replica whose step model is known."""

from dataclasses import replace

import pytest

from harness_llm.loadgen.prediction import Measured, OutputTokens, Work, cost, predict

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
