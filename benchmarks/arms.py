"""The two arms: the replica pool behind LoadGen, and LLM.generate in its own process. Both keep their engine warm."""

import datetime as dt
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import psutil
import zmq

from benchmarks.measurement import HarnessMeasurement, Measurement
from harness_llm.errors import RunFailed
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.protocol.child_processes import Child, Exit, start, watch
from harness_llm.replicas.local import replica_environment
from harness_llm.replicas.placement import placement
from harness_llm.runs.record import State


class RawSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of raw vLLM is started with.

    Attributes:
        endpoint: where it awaits how many passes over the first `samples` of the store it shall answer.
    """

    checkpoint: str
    llm_config: dict[str, Any]
    sampling: dict[str, Any]
    endpoint: str
    cpus: list[int]
    store: str
    samples: int
    warm_up_store: str


@dataclass(frozen=True)
class Usage:
    """CPU seconds so far; `loadgen` is that of children that have ended, which are LoadGen's processes alone."""

    wall: float
    machine: float
    engine: float
    idle: float
    loadgen: float

    @classmethod
    def now(cls, engine: Child, idle: Child) -> "Usage":
        """What was used until now."""
        times = psutil.cpu_times()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(
            wall=time.perf_counter(),
            machine=times.user + times.nice + times.system + times.irq + times.softirq + times.steal,
            engine=_cpu_seconds(engine),
            idle=_cpu_seconds(idle),
            loadgen=ended.ru_utime + ended.ru_stime,
        )

    def since(self, before: "Usage") -> "Usage":
        """What was used from `before` until this."""
        return Usage(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))

    @property
    def others_cores(self) -> float:
        """Cores that processes of neither arm kept busy."""
        return (self.machine - self.engine - self.idle - self.loadgen) / self.wall


def _cpu_seconds(child: Child) -> float:
    used = psutil.Process(child.process.pid).cpu_times()
    return float(used.user + used.system)


class Notes:
    """Keeps what LoadGen's process said and when it started to load."""

    def __init__(self) -> None:
        """Start the clock."""
        self._begin = time.perf_counter()
        self.start_s = 0.0
        self.last: Mapping[str, Any] = {}

    def progress(self, body: Mapping[str, Any]) -> None:
        """A status line of LoadGen's process."""
        if body["event"] == "started":
            self.start_s = time.perf_counter() - self._begin
        self.last = body


def measure_harness(bench: ScenarioContext, samples: int, idle: Child) -> HarnessMeasurement:
    """A run of `samples` through LoadGen, kept with the other runs of this system."""
    plan = bench.plan
    # LoadGen takes min_query_count as Offline's number of samples.
    conf = plan.confs["performance"].for_run(plan.loadgen_model, plan.load.scenario, {"min_query_count": samples})
    request = replace(bench.request, started=dt.datetime.now(dt.UTC))
    [engine] = bench.pool.replicas
    notes, before = Notes(), Usage.now(engine, idle)
    own = replace(bench, request=request, plan=replace(plan, confs={"performance": conf}))
    run = execute_run(own, "performance", notes)
    used = Usage.now(engine, idle).since(before)
    if run.record is None or run.state is not State.VALID or notes.last["done"] != samples:
        raise RunFailed("the harness's run is not VALID", where=str(run.path), found="; ".join(run.reasons))
    figures = run.record.metrics
    return HarnessMeasurement(
        samples=samples,
        tokens=notes.last["tokens"],
        seconds=figures["duration_s"],
        tokens_per_second=figures["tokens_per_second"],
        engine_cpu_s=used.engine,
        idle_cpu_s=used.idle,
        others_cores=used.others_cores,
        loadgen_cpu_s=used.loadgen,
        loadgen_start_s=notes.start_s,
    )


class Raw:
    """LLM.generate in a process of its own, on the cores of the replica pool's replica."""

    def __init__(self, bench: ScenarioContext) -> None:
        """Start it; returns once it has warmed up as the replica has."""
        plan, assets, folder = bench.plan, bench.assets, bench.pool.folder
        cpus = list(placement([{}], plan.config.harness_config.loadgen_cpus).replicas[0].binding.cpus)
        endpoint = f"ipc://{folder}/raw"
        spec = RawSpec(
            checkpoint=str(assets.checkpoint),
            llm_config=plan.config.llm_config,
            sampling=plan.config.sampling.model_dump(),
            endpoint=endpoint,
            cpus=cpus,
            store=str(assets.store("performance")),
            samples=bench.request.samples("performance"),
            warm_up_store=str(assets.calibration),
        )
        file = folder / "raw.json"
        file.write_bytes(msgspec.json.encode(spec))
        self._samples = spec.samples
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PUSH)
        self._socket.connect(endpoint)
        log = bench.request.log_folder / "raw.log"
        environment = replica_environment(plan.config, cpus, folder=folder, cache=bench.request.workspace.cache)
        self.child = start("benchmarks.raw", [str(file)], name="raw vLLM", log=log, environment=environment)
        self._await("ready")

    def _await(self, event: str) -> dict[str, Any]:
        while True:
            for said in watch([self.child], 1):
                if isinstance(said, Exit):
                    raise RunFailed("raw vLLM ended", where=str(said.child.log), found=said.child.last_lines())
                if said.body["event"] == event:
                    return said.body

    def measure(self, samples: int, idle: Child) -> Measurement:
        """Answer `samples`, a whole number of passes over the data set."""
        before = Usage.now(self.child, idle)
        self._socket.send(str(samples // self._samples).encode())
        done = self._await("done")
        used = Usage.now(self.child, idle).since(before)
        return Measurement(
            samples=samples,
            tokens=done["tokens"],
            seconds=done["seconds"],
            tokens_per_second=done["tokens"] / done["seconds"],
            engine_cpu_s=used.engine,
            idle_cpu_s=used.idle,
            others_cores=used.others_cores,
        )

    def stop(self) -> None:
        """End it."""
        self._socket.close(linger=0)
        self.child.stop()
