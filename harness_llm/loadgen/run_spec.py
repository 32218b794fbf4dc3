"""Specification of a run for LoadGen's process: a file beside its logs."""

from typing import Any

import msgspec

from harness_llm.config.in_flight import InFlightLimit
from harness_llm.config.load import Load
from harness_llm.loadgen.probe import ProbeSpec
from harness_llm.protocol.messages import Endpoint

SPEC = "loadgen.json"


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Specification of a run.

    Attributes:
        scenario: LoadGen's name; `model` likewise.
        audit_config: the file of a compliance test, else empty.
        stream: whether first tokens are reported.
        keys: file with the CURVE keys of LoadGen's process, for replicas on other machines.
        in_flight_limit: for Offline.
        heartbeat_timeout_s: without a heartbeat, until a replica fails.
        stall_timeout_s: without a step of a busy engine, until its replica fails.
        load: that the probe's prediction is compared with; `target_key` is the user.conf key that sets it.
        probe: load before LoadGen's clock starts; None for no probe.
        expected: TestSettings' attributes after user.conf was read.
        limits_ms: p99 limits of `ttft` and `tpot`, for counts in progress messages; LoadGen has its own.
        idle_timeout_s: for replicas to become idle after Attach and Detach.
        records: whether times per query and second are recorded; benchmarks measure the cost.
    """

    run_key: str
    generation: int
    scenario: str
    model: str
    mode: str
    output: str
    user_conf: str
    audit_config: str
    endpoints: list[Endpoint]
    keys: str
    stream: bool
    in_flight_limit: InFlightLimit
    heartbeat_timeout_s: float
    stall_timeout_s: float
    sampling: dict[str, Any]
    store: str
    samples: int
    load: Load
    target_key: str
    probe: ProbeSpec | None
    expected: dict[str, int | float]
    cpus: list[int]
    idle_timeout_s: float
    limits_ms: dict[str, float] | None = None
    records: bool = True
