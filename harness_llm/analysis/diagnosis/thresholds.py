"""Thresholds of the diagnosis, each with its reason. An effect below its threshold is no cause."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A value, and why it is this one."""

    value: float
    reason: str


CONFIDENCE = Threshold(0.99, "a run is judged by about ten intervals; at 95 % many healthy runs would show a cause")
QUEUE_DELAY = Threshold(
    0.1, "share of the TTFT limit: a smaller delay by the growth of the queue does not decide a run of this length"
)
BATCH_GROWTH = Threshold(0.2, "share of the queries in flight: arrivals at random vary their number by less")
SLOWDOWN = Threshold(1.05, "replicas of one system differ by 1 to 3 % in clocks and memory")
STALL_S = Threshold(2.0, "seconds: heartbeats are one second apart, so a shorter stall is not visible")
STALL_FACTOR = Threshold(
    5.0, "times the slow steps (90th percentile) of the replica: prompts make steps a few times longer"
)
FIRST_STEPS_S = Threshold(2.0, "seconds after the first query of a replica: heartbeats are one second apart")
PREEMPTIONS = Threshold(0.01, "per query: fewer cost less than 1 % of the tokens")
CLIENT_DELAY = Threshold(0.1, "share of the TTFT limit: a smaller delay is within the margin that a target leaves")
STARVED = Threshold(0.05, "share of the batch that is empty although queries are left: 5 % is above the noise of runs")
DRAIN_TAIL = Threshold(0.05, "share of the run: a run of 600 s loses less with answers of up to 30 s")
THROTTLED = Threshold(
    0.05, "share of the seconds under load: a rarer limit changes the throughput by less than its noise"
)
BUSY = Threshold(0.5, "utilisation: a GPU below it is not under load, and reduces its clock for that reason")
CLOCK_LOSS = Threshold(0.05, "share of the clock: GPUs at their power cap vary by less, and devices differ by 1 to 3 %")
FEWEST_BLOCKS = Threshold(6, "blocks of time: fewer give no useful interval at 99 %")
MARGIN = Threshold(0.95, "share of a limit to aim at: p99 varies by about 5 % between runs")
SMALLEST_STEP = Threshold(0.5, "share of the target: a larger reduction at once skips good targets")
"""The last two bound the next values, not the causes."""
