"""Refusal of targets that the probe's prediction rules out, so that no night is spent on a run that is INVALID."""

from harness_llm.config.load import Load, issued, seconds
from harness_llm.errors import GateFailed
from harness_llm.loadgen.prediction import Prediction

# Advised target as a share of the predicted throughput. Latency limits hold a Server below it; LoadGen issues samples
# for 110 % of the duration at an Offline target, and a run of less than that is too short.
SERVER_ADVICE = 0.8
OFFLINE_ADVICE = 1.1
SINGLE_STREAM_ADVICE = 0.9


def judge_prediction(load: Load, prediction: Prediction, key: str) -> None:
    """Raise GateFailed where no throughput within the bounds of `prediction` makes a run of `load` VALID.

    `key` is the user.conf key that chose the load, for the hint.
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
        hint=f"set {key} = {prediction.samples_per_second * SERVER_ADVICE:.3g}",
    )


def _judge_duration(load: Load, prediction: Prediction, key: str) -> None:
    longest = seconds(load, "performance", prediction.low) + prediction.tail_s
    if longest >= load.min_duration_s:
        return
    rate = prediction.samples_per_second
    advice = f"{rate * OFFLINE_ADVICE:.3g}"
    if load.scenario == "SingleStream":
        advice = f"{1000 / rate * SINGLE_STREAM_ADVICE:.3g}"
    raise GateFailed(
        "the run would be shorter than min_duration",
        where=key,
        expected=f"at least {load.min_duration_s:.0f} s",
        found=f"at most {longest:.0f} s: {issued(load, 'performance')} samples, predicted throughput "
        f"{interval(prediction)}",
        hint=f"set {key} = {advice}",
    )


def interval(prediction: Prediction) -> str:
    """Predicted throughput with its bounds."""
    return f"{prediction.samples_per_second:.4g} samples/s ({prediction.low:.4g} to {prediction.high:.4g})"
