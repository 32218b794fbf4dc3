"""LoadGen's process of one run.

LoadGen reads its configuration once per process and cannot be aborted. So each run has its own process, which reports
an error to its parent and exits. Run as `python -m harness_llm.loadgen.process SPEC.json` by the pipeline.
"""

import gc
import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import mlperf_loadgen as lg
import msgspec
import psutil

from harness_llm.config.benchmark import Sampling
from harness_llm.config.load import seconds
from harness_llm.errors import HarnessError, ProcessFailed, RunFailed
from harness_llm.loadgen.health import HealthMonitor
from harness_llm.loadgen.meter import Meter
from harness_llm.loadgen.prediction import judge_prediction
from harness_llm.loadgen.probe import ProbeSpec, Unmeasured, contexts, run_probe
from harness_llm.loadgen.probe_pool import ClientPool
from harness_llm.loadgen.recorder import Recorder
from harness_llm.loadgen.replica_client import ReplicaClient
from harness_llm.loadgen.run_spec import RunSpec
from harness_llm.loadgen.settings import compare
from harness_llm.loadgen.sut import Sut
from harness_llm.protocol.child_processes import Parent, before_exit
from harness_llm.protocol.curve import read_key_pair
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.token_store import TokenStore, open_store

MODES = {"performance": lg.TestMode.PerformanceOnly, "accuracy": lg.TestMode.AccuracyOnly}


def main(recorder_of: Callable[[RunSpec], Recorder] = Recorder) -> None:
    """Execute the run; report errors to the parent."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RunSpec)
    parent, recorder = Parent(), recorder_of(spec)
    before_exit(recorder.write)
    os.sched_setaffinity(0, spec.cpus)
    try:
        _run(spec, parent, recorder)
    except HarnessError as error:
        _fail(parent, error, recorder)


def _fail(parent: Parent, error: Exception, recorder: Recorder) -> None:
    """Report `error`, write the records and exit: LoadGen would wait for missing answers."""
    traceback.print_exception(error)
    if not isinstance(error, HarnessError):
        error = ProcessFailed("the LoadGen process failed", found=repr(error))
    parent.send(event="failed", **error.facts())
    recorder.write()
    os._exit(error.exit_code)


def _run(spec: RunSpec, parent: Parent, recorder: Recorder) -> None:
    settings = _settings(spec)
    replica_client = _replica_client(spec, parent)
    store, sampling = open_store(Path(spec.store)), Sampling.model_validate(spec.sampling)
    if spec.probe:
        _probe(spec, spec.probe, replica_client, store, parent)
    else:
        replica_client.attach(spec.run_key, sampling, store)

    def report(meter: Meter) -> None:
        # The encoder of json takes 30 times as long: 0.3 ms for 72 replicas, in the thread that reports to LoadGen.
        replicas = msgspec.json.encode(replica_client.statuses()).decode()
        # This thread measures: it may not wait for a parent that is suspended or whose output is blocked.
        parent.offer(
            event="progress",
            unanswered=replica_client.unanswered,
            replicas=replicas,
            **meter.snapshot(time.perf_counter()),
        )

    # Garbage collection stops LoadGen's thread for tens of ms, and there are no cycles (docs/benchmarks.md, growth).
    gc.disable()
    sut = Sut(
        replica_client,
        stream=spec.stream,
        report=report,
        fail=lambda error: _fail(parent, error, recorder),
        log=recorder.start(store.lengths()),
        limits_ms=spec.limits_ms,
    )
    sut.start()
    parent.send(event="started", rss_bytes=psutil.Process().memory_info().rss, start=recorder.started)
    _run_loadgen(spec, settings, replica_client)
    sut.stop()
    readings = replica_client.detach()
    replica_client.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    recorder.write()
    parent.send(
        event="finished",
        done=sut.meter.done,
        tokens=sut.meter.tokens,
        peak_rss_bytes=peak,
        counters=readings.counters,
        kv_caches=msgspec.to_builtins(readings.kv_caches),
    )


def _replica_client(spec: RunSpec, parent: Parent) -> ReplicaClient:
    def report_failed(endpoint: Endpoint, cause: str, queries: int) -> None:
        parent.send(event="replica_failed", address=endpoint.address, cause=cause, queries=queries)

    return ReplicaClient(
        spec.endpoints,
        generation=spec.generation,
        in_flight_limit=spec.in_flight_limit if spec.scenario == "Offline" else None,
        stream=spec.stream,
        health=HealthMonitor(spec.heartbeat_timeout_s, spec.stall_timeout_s),
        pool_events=parent.messages,
        report_failed=report_failed,
        keys=read_key_pair(Path(spec.keys)),
        idle_timeout_s=spec.idle_timeout_s,
    )


def _settings(spec: RunSpec) -> lg.TestSettings:
    settings = lg.TestSettings()
    status = settings.FromConfig(spec.user_conf, spec.model, spec.scenario, 1)
    if status:
        raise RunFailed("LoadGen rejects user.conf", where=spec.user_conf, found=f"status {status}")
    settings.scenario = getattr(lg.TestScenario, spec.scenario)
    settings.mode = MODES[spec.mode]
    compare(settings, spec.expected)
    return settings


def _run_loadgen(spec: RunSpec, settings: lg.TestSettings, replica_client: ReplicaClient) -> None:
    log = lg.LogSettings()
    log.log_output.outdir = spec.output
    log.log_output.copy_summary_to_stdout = True
    log.enable_trace = False
    handle = lg.ConstructFastSUT(replica_client.issue, lambda: None)
    library = lg.ConstructQSL(spec.samples, spec.samples, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(handle, library, settings, log, spec.audit_config)
    lg.DestroyQSL(library)
    lg.DestroyFastSUT(handle)


def _probe(spec: RunSpec, probe: ProbeSpec, replica_client: ReplicaClient, store: TokenStore, parent: Parent) -> None:
    """Predict the throughput, attach for the run, and reject a target with which the run cannot become VALID."""
    sampling = Sampling.model_validate(spec.sampling)
    work = probe.work(float(store.lengths().mean()))
    calibration = open_store(Path(probe.store))
    prompts = contexts([calibration.prompt(i) for i in range(len(calibration))], probe)
    pool, began = ClientPool(replica_client, sampling, probe.tokens), time.perf_counter()
    try:
        found = run_probe(pool, prompts, work, probe)
    except Unmeasured as error:
        replica_client.attach(spec.run_key, sampling, store)
        parent.send(event="probed", prediction=None, reason=str(error))
        return
    loaded = time.perf_counter()
    tail_s = found.likely_tail_s if spec.scenario == "Offline" else 0.0
    replica_client.attach(spec.run_key, sampling, store)
    prediction = msgspec.structs.replace(
        found,
        load_s=loaded - began,
        drain_s=time.perf_counter() - loaded,
        run_s=seconds(spec.load, "performance", found.samples_per_second) + tail_s,
    )
    parent.send(event="probed", prediction=msgspec.to_builtins(prediction))
    judge_prediction(spec.load, prediction, spec.target_key)


if __name__ == "__main__":
    threading.current_thread().name = "loadgen"
    main()
