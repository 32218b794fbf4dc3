"""The two arms: LoadGen with the replica pool, and LLM.generate in its own process. Both keep their engines warm."""

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
    """Specification of the process of raw vLLM.

    Attributes:
        endpoint: address on which it receives the number of passes over the first `samples` of the store.
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
    """CPU seconds so far; `loadgen` is that of children that have exited, which are only LoadGen's processes."""

    wall: float
    machine: float
    engine: float
    idle: float
    loadgen: float

    @classmethod
    def now(cls, engine: Child, idle: Child) -> "Usage":
        """Read the current totals."""
        times = psutil.cpu_times()
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cls(
            wall=time.perf_counter(),
            machine=times.user + times.nice + times.system + times.irq + times.softirq + times.steal,
            engine=_cpu_seconds(engine),
            idle=_cpu_seconds(idle),
            loadgen=children.ru_utime + children.ru_stime,
        )

    def since(self, before: "Usage") -> "Usage":
        """Return the difference from `before`."""
        return Usage(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))

    @property
    def others_cores(self) -> float:
        """Cores used by processes of neither arm."""
        return (self.machine - self.engine - self.idle - self.loadgen) / self.wall


def _cpu_seconds(child: Child) -> float:
    used = psutil.Process(child.process.pid).cpu_times()
    return float(used.user + used.system)


class Progress:
    """Keeps the last status of LoadGen's process, and the time when it started to issue."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self.start_s = 0.0
        self.last: Mapping[str, Any] = {}

    def progress(self, body: Mapping[str, Any]) -> None:
        """Record a status of LoadGen's process."""
        if body["event"] == "started":
            self.start_s = time.perf_counter() - self._begin
        self.last = body


def measure_harness(bench: ScenarioContext, samples: int, idle: Child) -> HarnessMeasurement:
    """Execute a run of `samples` through LoadGen; it is stored with the other runs of this system."""
    plan = bench.plan
    # In Offline, LoadGen uses min_query_count as number of samples.
    conf = plan.confs["performance"].for_run(plan.loadgen_model, plan.load.scenario, {"min_query_count": samples})
    request = replace(bench.request, started=dt.datetime.now(dt.UTC))
    [engine] = bench.pool.replicas
    progress, before = Progress(), Usage.now(engine, idle)
    own = replace(bench, request=request, plan=replace(plan, confs={"performance": conf}))
    run = execute_run(own, "performance", progress)
    used = Usage.now(engine, idle).since(before)
    if run.record is None or run.state is not State.VALID or progress.last["done"] != samples:
        raise RunFailed("the harness's run is not VALID", where=str(run.path), found="; ".join(run.reasons))
    figures = run.record.metrics
    return HarnessMeasurement(
        samples=samples,
        tokens=progress.last["tokens"],
        seconds=figures["duration_s"],
        tokens_per_second=figures["tokens_per_second"],
        engine_cpu_s=used.engine,
        idle_cpu_s=used.idle,
        others_cores=used.others_cores,
        loadgen_cpu_s=used.loadgen,
        loadgen_start_s=progress.start_s,
    )


class Raw:
    """LLM.generate in its own process, on the cores of the replica."""

    def __init__(self, bench: ScenarioContext) -> None:
        """Start the process and wait until it has warmed up like the replica."""
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
            for message in watch([self.child], 1):
                if isinstance(message, Exit):
                    raise RunFailed("raw vLLM failed", where=str(message.child.log), found=message.child.last_lines())
                if message.body["event"] == event:
                    return message.body

    def measure(self, samples: int, idle: Child) -> Measurement:
        """Answer `samples`, an integral number of passes over the data set."""
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
        """Stop the process."""
        self._socket.close(linger=0)
        self.child.stop()
