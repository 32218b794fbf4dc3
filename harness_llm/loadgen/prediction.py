"""Throughput prediction from the probe's measurements. Pure arithmetic; times in seconds, lengths in tokens.

Model of a replica with continuous batching: in steady state each of `batch` running sequences gets one token per decode
step, and each sample needs its prompt computed once. So a sample costs

    output tokens x decode step at full batch / batch  +  prompt tokens x seconds per prompt token

The probe measures both terms. It cannot fill a large batch with real prompts in its time, so the decode step at full
batch is measured with short prompts, and the time that longer contexts add per sequence is measured in a smaller batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

# Timing noise, and differences between the probe and minutes of load.
TOLERANCE = 0.05
# Mean age of the running sequences, in mean output lengths. Long answers run longer, so it is more than a half: with
# a coefficient of variation c of the lengths it is (1 + c^2) / 2; c is 0.6 to 0.8 for log-normal lengths.
MEAN_AGE = 0.75
# The longest of thousands of answers, in mean output lengths: log-normal lengths reach 8 (deviation 0.7) and more.
LONGEST_ANSWER = 8


class OutputTokens(msgspec.Struct, frozen=True):
    """Output tokens per sample: mean, and the range within which a run is VALID."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class Work:
    """What the run asks of a replica.

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
    """What the probe measured of one replica.

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
        """The decode step of any batch with short contexts, by interpolation."""
        sizes = sorted(self.short_steps_s)
        return float(np.interp(batch, sizes, [self.short_steps_s[size] for size in sizes]))


@dataclass(frozen=True)
class Cost:
    """Seconds of a replica per sample: the shortest and longest that the measurements allow, and the likely value."""

    low: float
    mean: float
    high: float


def cost(measured: Measured, work: Work) -> Cost:
    """What a sample costs.

    `low` assumes that prompts are computed in the time in which decode steps wait for memory; `high` that all time of
    the fill was needed for the prompts.
    """
    output, prompt, short = work.output, work.prompt_tokens, measured.short_step_s
    contexts_s = max(measured.step_s - short(measured.batch), 0.0)
    step = short(work.batch) + contexts_s * work.batch / measured.batch * work.context / measured.context

    def prefill(decode_step_s: float) -> float:
        return prompt * max(measured.fill_s - measured.fill_steps * decode_step_s, 0.0) / measured.fill_tokens

    compute = max(step - _fixed(measured, work), 0.0)
    return Cost(
        low=max(output.low * step, output.low * compute + prefill(measured.step_s) * work.batch) / work.batch,
        # On average the fill's batch was half full.
        mean=output.mean * step / work.batch + prefill(short(measured.batch / 2) + contexts_s / 2),
        high=output.high * step / work.batch + prefill(0.0),
    )


def _fixed(measured: Measured, work: Work) -> float:
    """The part of a decode step that does not grow with the batch: reading the weights, launching kernels."""
    small = min(measured.short_steps_s)
    step = measured.short_step_s(small)
    slope = max(measured.short_step_s(work.batch) - step, 0.0) / max(work.batch - small, 1)
    return max(step - slope * small, 0.0)


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """Predicted throughput of all replicas together.

    Attributes:
        samples_per_second: likely value; `low` and `high` bound it.
        tail_s: decode steps of the longest answer possible, without what grows with the batch. An Offline run ends at
            most so much later than its samples need, because its last batch runs empty; `likely_tail_s` is the same
            for a longest answer of LONGEST_ANSWER means.
        load_s: time that the probe took to load and measure; `drain_s` until all replicas were idle again.
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
    """The throughput of the replicas that were `measured`; `longest` is the most tokens of an answer."""
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
