"""Throughput prediction from the probe's measurements, and its check of a run's target. Pure.

Times are in seconds, lengths in tokens.

Model of a replica with continuous batching: in steady state each of `batch` running sequences gets one token per decode
step, and each prompt is computed once. So a sample costs

    output tokens x decode step at full batch / batch  +  prompt tokens x seconds per prompt token

The probe measures both terms. It cannot fill a large batch with real prompts in its time, so the decode step at full
batch is measured with short prompts, and the time that longer contexts add per sequence is measured in a smaller batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from harness_llm.config.load import Load, issued, seconds
from harness_llm.errors import GateFailed

# Timing noise, and differences between the probe and minutes of load.
TOLERANCE = 0.05
# Mean age of the running sequences, in mean output lengths. Long answers run longer, so it is more than a half: with
# a coefficient of variation c of the lengths it is (1 + c^2) / 2; c is 0.6 to 0.8 for log-normal lengths.
MEAN_AGE = 0.75
# The longest of thousands of answers, in mean output lengths: log-normal lengths reach 8 (deviation 0.7) and more.
LONGEST_ANSWER = 8
# Recommended target as a share of the predicted throughput. In Server, latency limits allow less than the throughput.
# In Offline, LoadGen issues samples for 110 % of the duration at the target, and a run of fewer samples is too short.
SERVER_SHARE = 0.8
OFFLINE_SHARE = 1.1
SINGLE_STREAM_SHARE = 0.9


class OutputTokens(msgspec.Struct, frozen=True):
    """Output tokens per sample: mean, and the range within which a run is VALID."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Work:
    """Work of a replica in the run.

    Attributes:
        prompt_tokens: mean of the data set.
        batch: sequences that run at once.
    """

    prompt_tokens: float
    output: OutputTokens
    batch: int

    @property
    def context(self) -> float:
        """Mean context of the running sequences."""
        return self.prompt_tokens + MEAN_AGE * self.output.mean


@dataclass(frozen=True)
class Measured:
    """Measurements of one replica.

    Attributes:
        fill_s: from the first prompt sent to the first token of the last.
        fill_tokens: prompt tokens computed in it.
        fill_steps: decode steps made in it.
        batch: sequences running after it.
        context: their mean context.
        step_s: decode step at `batch` with real contexts.
        short_steps_s: decode steps with short contexts, by batch: half of `batch`, `batch`, and the full batch,
            where `batch` is the smallest of all replicas.
    """

    fill_s: float
    fill_tokens: int
    fill_steps: float
    batch: int
    context: float
    step_s: float
    short_steps_s: Mapping[int, float]

    def short_step_s(self, batch: float) -> float:
        """Interpolate the decode step at `batch` with short contexts."""
        sizes = sorted(self.short_steps_s)
        return float(np.interp(batch, sizes, [self.short_steps_s[size] for size in sizes]))


@dataclass(frozen=True)
class Cost:
    """Seconds of a replica per sample: lower bound, likely value, upper bound."""

    low: float
    mean: float
    high: float


def cost(measured: Measured, work: Work) -> Cost:
    """Compute the cost of a sample.

    `low` assumes that prompts are computed while decode steps wait for memory; `high` that prompts took all of the
    fill's time.
    """
    output, prompt, short = work.output, work.prompt_tokens, measured.short_step_s
    contexts_s = max(measured.step_s - short(measured.batch), 0.0)
    step = short(work.batch) + contexts_s * work.batch / measured.batch * work.context / measured.context

    def prefill(decode_step_s: float) -> float:
        return prompt * max(measured.fill_s - measured.fill_steps * decode_step_s, 0.0) / measured.fill_tokens

    compute = max(step - _fixed(measured, work), 0.0)
    return Cost(
        low=max(output.low * step, output.low * compute + prefill(measured.step_s) * work.batch) / work.batch,
        # During the fill, the batch is half full on average.
        mean=output.mean * step / work.batch + prefill(short(measured.batch / 2) + contexts_s / 2),
        high=output.high * step / work.batch + prefill(0.0),
    )


def _fixed(measured: Measured, work: Work) -> float:
    """Return the part of a decode step that is constant in the batch: reading weights, launching kernels."""
    small = min(measured.short_steps_s)
    step = measured.short_step_s(small)
    slope = max(measured.short_step_s(work.batch) - step, 0.0) / max(work.batch - small, 1)
    return max(step - slope * small, 0.0)


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted throughput of all replicas together.

    Attributes:
        samples_per_second: likely value; `low` and `high` bound it.
        tail_s: decode steps of the longest possible answer, in a small batch: the most that the last, emptying batch
            prolongs an Offline run; `likely_tail_s` is the same for a longest answer of LONGEST_ANSWER means.
        load_s: duration of the probe; `drain_s` until all replicas were idle again.
        run_s: duration of the run at the likely value, with the likely tail in Offline.
    """

    samples_per_second: float
    low: float
    high: float
    tokens_per_second: float
    tail_s: float
    likely_tail_s: float
    load_s: float = 0.0
    drain_s: float = 0.0
    run_s: float = 0.0


def predict(measured: Sequence[Measured], work: Work, longest: int) -> Prediction:
    """Predict the throughput of the `measured` replicas; `longest` is the most tokens of an answer."""
    costs = [cost(replica, work) for replica in measured]
    rate = sum(1 / c.mean for c in costs)
    step_s = max(_fixed(replica, work) for replica in measured)
    return Prediction(
        samples_per_second=rate,
        low=sum(1 / c.high for c in costs) * (1 - TOLERANCE),
        high=sum(1 / c.low for c in costs) * (1 + TOLERANCE),
        tokens_per_second=rate * work.output.mean,
        tail_s=longest * step_s,
        likely_tail_s=min(longest, LONGEST_ANSWER * work.output.mean) * step_s,
    )


def judge_prediction(load: Load, prediction: Prediction, key: str) -> None:
    """Raise GateFailed if no throughput within the bounds of `prediction` makes a run of `load` VALID.

    `key` is the user.conf key that sets the load, for the hint.
    """
    if load.scenario == "Server":
        _judge_server(load, prediction, key)
    else:
        _judge_duration(load, prediction, key)


def _judge_server(load: Load, prediction: Prediction, key: str) -> None:
    if load.target_qps <= prediction.high:
        return
    raise GateFailed(
        "the target rate is above the throughput of this system",
        where=key,
        expected=f"at most {prediction.high:.4g} queries/s",
        found=f"{load.target_qps:g} queries/s, predicted throughput {interval(prediction)}",
        hint=f"set {key} = {prediction.samples_per_second * SERVER_SHARE:.3g}",
    )


def _judge_duration(load: Load, prediction: Prediction, key: str) -> None:
    longest = seconds(load, "performance", prediction.low) + prediction.tail_s
    if longest >= load.min_duration_s:
        return
    rate = prediction.samples_per_second
    target = f"{rate * OFFLINE_SHARE:.3g}"
    if load.scenario == "SingleStream":
        target = f"{1000 / rate * SINGLE_STREAM_SHARE:.3g}"
    raise GateFailed(
        "the run would be shorter than min_duration",
        where=key,
        expected=f"at least {load.min_duration_s:.0f} s",
        found=f"at most {longest:.0f} s: {issued(load, 'performance')} samples, predicted throughput "
        f"{interval(prediction)}",
        hint=f"set {key} = {target}",
    )


def interval(prediction: Prediction) -> str:
    """Format the predicted throughput with its bounds."""
    return f"{prediction.samples_per_second:.4g} samples/s ({prediction.low:.4g} to {prediction.high:.4g})"
