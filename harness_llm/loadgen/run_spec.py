"""What the LoadGen process of a run is told: a file beside its logs."""

from typing import Any

import msgspec

from harness_llm.config.in_flight import InFlightLimit
from harness_llm.config.load import Load
from harness_llm.loadgen.probe import ProbeSpec
from harness_llm.protocol.messages import Endpoint

SPEC = "loadgen.json"


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a LoadGen process is told.

    Attributes:
        scenario: LoadGen's; `model` is LoadGen's name too.
        audit_config: the file of a compliance test, else empty.
        stream: whether first tokens are reported.
        keys: the file of its own keys, for replicas on other machines.
        credit: queries that a replica holds in Offline.
        silence_s: without a heartbeat, until a replica is lost.
        stall_s: without a step of a busy engine, until its replica is lost.
        load: what the probe is judged by; `target_key` is the user.conf key that chose it.
        probe: load before the clock starts; None for none.
        expected: TestSettings' attributes as they must be once user.conf was read.
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
    silence_s: float
    stall_s: float
    sampling: dict[str, Any]
    store: str
    samples: int
    load: Load
    target_key: str
    probe: ProbeSpec | None
    expected: dict[str, int | float]
    cpus: list[int]
