"""The probe: some seconds of load before the clock starts, so that no night is spent on a run that cannot be VALID."""

import math

from harness_llm.errors import GateFailed
from harness_llm.plan import Load, issued, seconds

# A probe of seconds may see less than a run of minutes does, hardly more; closer calls are left to the run.
SLOW_BY = 0.15
FAST_BY = 0.05
# What a Server target is advised at, as a share of the rate without arrivals to wait for.
SERVER_ADVICE = 0.8


def judge_probe(load: Load, rate: float, key: str) -> None:
    """Raise GateFailed where a system that answers `rate` samples a second cannot make `load` VALID.

    `key` is the user.conf key that chose the load, for the hint.
    """
    if load.scenario == "Server":
        _judge_server(load, rate, key)
        return
    length = seconds(load, "performance", rate)
    if length >= load.min_duration_s * (1 - FAST_BY):
        return
    advice = f"{key} = {math.ceil(rate * 1.1)}"
    if load.scenario == "SingleStream":
        advice = f"{key} = {math.floor(900 / rate * 10) / 10}"
    raise GateFailed(
        "this run would end too early to be VALID",
        where=key,
        expected=f"at least {load.min_duration_s:.0f} s",
        found=f"{issued(load, 'performance')} samples at {rate:.1f} samples/s last {length:.0f} s",
        hint=f"set {advice}",
    )


def _judge_server(load: Load, rate: float, key: str) -> None:
    if load.target_qps <= rate * (1 + SLOW_BY):
        return
    raise GateFailed(
        "this system cannot keep up with the target rate",
        where=key,
        expected=f"{load.target_qps:g} queries/s",
        found=f"{rate:.1f} queries/s in the probe",
        hint=f"set {key} = {rate * SERVER_ADVICE:.1f}",
    )
