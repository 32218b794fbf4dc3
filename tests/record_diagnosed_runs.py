"""Record the runs in tests/data/diagnosed: `python tests/record_diagnosed_runs.py [CASE …]`, in about ten minutes.

Real LoadGen and replay replicas, or vLLM with the demo. Each run has one provoked cause, or none. The recordings are
trimmed: times on a grid of 2^-14 s, the log without long lists, no facts about the machine.
"""

import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from demo_cache import demo_assets
from live_runs import OnFirstAnswer, Runs, loadgen_processes
from trim_golden import MARK, trimmed_log
from workspaces import make_workspace

from benchmarks import replayed
from benchmarks.replayed import replay_bench, with_load
from harness_llm.errors import HarnessError
from harness_llm.loadgen.logs import DETAIL
from harness_llm.pipeline.loadgen_spec import USER_CONF
from harness_llm.pipeline.run import CONFIG, ScenarioContext, execute_run
from harness_llm.protocol.child_processes import Child, start
from harness_llm.protocol.record_files import FILES
from harness_llm.replicas.local import program, start_pool
from harness_llm.runs.record import LOCK, RECORD, Run, load_run

TARGET = Path(__file__).with_name("data") / "diagnosed"
GRID = 2**14
DROPPED = ("requested_performance_issue", "requested_accuracy", "logger_", "loadgen_file_sha1", "loadgen_git", "qsl_")
REPLICAS = 3
# Three replicas complete about 100 queries/s of 294 prompt tokens and 30 output tokens; an answer takes 0.8 s.
ENGINE = {
    "processes": REPLICAS,
    "prefill_tokens_per_s": 20_000,
    "step_s": 0.02,
    "step_s_per_sequence": 0.0002,
    "output_tokens": 30,
    "output_spread": 0.4,
}
# The published speed of an MI300X; the probe assumes published lengths of the answers.
PUBLISHED = {"prefill_tokens_per_s": 7_250, "step_s": 0.025, "step_s_per_sequence": 0.000138, "output_tokens": 294}
Fault = Callable[[ScenarioContext], None]


def suspend_replica(bench: ScenarioContext, after_s: float = 5.0, seconds: float = 7.0) -> None:
    """Stop one replica's process for a while."""
    process = bench.pool.replicas[1].process.pid
    threading.Timer(after_s, os.kill, (process, signal.SIGSTOP)).start()
    threading.Timer(after_s + seconds, os.kill, (process, signal.SIGCONT)).start()


def kill_replica(bench: ScenarioContext, after_s: float = 5.0) -> None:
    threading.Timer(after_s, bench.pool.replicas[1].process.kill).start()


def slow_loadgen(_: ScenarioContext, stopped_s: float = 2.2, running_s: float = 0.3) -> None:
    """Let LoadGen's process run for a part of the time only, as on an overloaded core."""
    [process] = loadgen_processes()

    def alternate() -> None:
        while process.is_running():
            process.suspend()
            time.sleep(stopped_s)
            process.resume()
            time.sleep(running_s)

    threading.Thread(target=alternate, daemon=True).start()


def launch_cold(name: str, specs: Any, environment: Mapping[str, str], log: Path) -> Child:
    _, file = program(specs, Path(environment["TMPDIR"]) / f"{name}.json")
    environment = {**environment, "PYTHONPATH": str(Path(__file__).parent)}
    return start("cold_replica", [str(file)], name=name, log=log, environment=environment)


@dataclass(frozen=True)
class Case:
    """A run of replay replicas.

    Attributes:
        engine: replay_config beside ENGINE; `llm` is llm_config and `harness` is harness_config.
        keys: of user.conf; latency limits other than the benchmark's are of the open division.
    """

    qps: float
    scenario: str = "Server"
    seconds: float = 0.5
    engine: Mapping[str, Any] = field(default_factory=dict)
    llm: Mapping[str, int] = field(default_factory=dict)
    harness: Mapping[str, int] = field(default_factory=dict)
    keys: Mapping[str, float] = field(default_factory=dict)
    fault: Fault = lambda _: None
    cold: bool = False
    probe: bool = False

    @property
    def sets(self) -> list[str]:
        llm = {"max_num_seqs": 64, "max_num_batched_tokens": 2048} | self.llm
        sections = {"replay_config": ENGINE | self.engine, "llm_config": llm, "harness_config": self.harness}
        return [f"{section}.{key}={value}" for section, keys in sections.items() for key, value in keys.items()]


CASES = {
    "healthy_server": Case(50),
    "healthy_offline": Case(90, "Offline", 20, engine={"output_spread": 0.2}),
    "overload": Case(140),
    "slow_replica_invalid": Case(80, engine={"speeds": [1, 0.3, 1]}),
    "slow_replica_valid": Case(45, engine={"speeds": [1, 1, 0.6]}),
    "slow_replica_offline": Case(70, "Offline", 15, engine={"speeds": [0.5, 1, 1], "output_spread": 0.2}),
    "long_prompts": Case(35, llm={"max_num_batched_tokens": 256}, keys={"ttft_latency": 110}),
    "large_batches": Case(46, engine={"step_s_per_sequence": 0.001}, keys={"tpot_latency": 55}),
    "too_short": Case(40, "Offline", 30, engine={"output_spread": 0.2}),
    "too_few": Case(50, keys={"min_query_count": 200, "performance_sample_count_override": 200}),
    "slow_loadgen": Case(50, fault=slow_loadgen),
    "long_answer": Case(100, "Offline", engine={"output_spread": 1.6, "output_tokens": 40}),
    "stall": Case(60, fault=suspend_replica),
    "cold": Case(50, cold=True),
    "killed": Case(50, fault=kill_replica),
    "starved": Case(90, "Offline", 15, harness={"backlog": 0}, fault=partial(slow_loadgen, stopped_s=1.5)),
    "probe_offline": Case(2, "Offline", 600, engine=PUBLISHED, probe=True),
}


@contextmanager
def replay_context(folder: Path, case: Case) -> Iterator[ScenarioContext]:
    launcher = {"launcher": launch_cold} if case.cold else {}
    with (
        patch.object(replayed, "start_pool", partial(start_pool, **launcher)),
        replay_bench(folder, case.scenario, REPLICAS, *case.sets) as bench,
    ):
        workspace = replace(bench.request.workspace, root=folder)
        profile = bench.request.profile.model_copy(update={"probe_s": 45 if case.probe else 0})
        yield replace(bench, request=replace(bench.request, workspace=workspace, profile=profile))


def make(bench: ScenarioContext, case: Case) -> Run:
    """Execute the run of `case`, with its fault after the first answers."""
    loaded = with_load(bench, case.qps, seconds=case.seconds)
    plan = loaded.plan
    confs = {t: conf.for_run(plan.loadgen_model, plan.load.scenario, case.keys) for t, conf in plan.confs.items()}
    loaded = replace(loaded, plan=replace(plan, confs=confs))
    return execute_run(loaded, "performance", OnFirstAnswer(lambda: case.fault(loaded)))


def record_replay(name: str, case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder, replay_context(Path(folder), case) as bench:
        keep(name, make(bench, case))


# vLLM with the demo

VLLM = {
    "healthy_vllm": ("Server", 700, ("llm_config.max_num_seqs=64",)),
    # The answers of the demo are short: with at least 40 tokens, each sequence needs a second block.
    "preemptions": (
        "Offline",
        400,
        (
            "sampling.min_tokens=40",
            "llm_config.block_size=32",
            "llm_config.num_gpu_blocks_override=60",
            "llm_config.max_num_seqs=64",
        ),
    ),
}


def record_vllm(name: str) -> None:
    scenario, samples, sets = VLLM[name]
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(make_workspace(Path(folder) / "workspace"), demo_assets(), "vllm", *sets, samples=samples)
        request = runs.request(scenario)
        with runs.pool(request) as pool:
            keep(name, runs.run(request, pool))


# Trimming


def keep(name: str, run: Run) -> None:
    """Replace the recording of `name` by `run`."""
    target = TARGET / name / Path(*run.path.parts[-4:])
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        old.unlink()
    write_record(run, target)
    (target / LOCK).touch()
    for file in (CONFIG, USER_CONF):
        (target / file).write_text((run.path / file).read_text())
    if (run.path / DETAIL).is_file():
        (target / DETAIL).write_text(detail(run.path / DETAIL))
    for file in FILES:
        if (run.path / file.name).is_file():
            write_table(run.path / file.name, target / file.name)
    size = sum(file.stat().st_size for file in target.iterdir())
    found = load_run(target)
    print(f"{name}: {found.state}, {size / 1024:.0f} KiB, {'; '.join(found.reasons)}", flush=True)  # noqa: T201


def write_record(run: Run, target: Path) -> None:
    record = json.loads((run.path / RECORD).read_text())
    command = re.sub(r" --user-conf \S+", "", record["command"])
    record |= {"nodes": {}, "command": command, "fingerprint": {}}
    (target / RECORD).write_text(json.dumps(record, indent=1) + "\n")


def detail(log: Path) -> str:
    lines = trimmed_log(log.read_text()).splitlines()
    messages = [json.loads(line.removeprefix(MARK)) for line in lines]
    return "".join(_line(message) for message in messages if not message["key"].startswith(DROPPED))


def _line(message: dict[str, Any]) -> str:
    metadata = {name: message["metadata"][name] for name in ("is_error", "is_warning")}
    return f"{MARK}{json.dumps({'key': message['key'], 'value': message['value'], 'metadata': metadata})}\n"


def write_table(source: Path, target: Path) -> None:
    table = pq.read_table(source)
    schema = table.schema
    floats = [name for name in schema.names if schema.field(name).type == pa.float64()]
    texts = [name for name in schema.names if schema.field(name).type == pa.string()]
    for name in floats:
        rounded = pa.array(np.round(table[name].to_numpy() * GRID) / GRID, from_pandas=True)
        table = table.set_column(schema.names.index(name), schema.field(name), rounded)
    pq.write_table(
        table, target, compression="zstd", compression_level=19, use_dictionary=texts, use_byte_stream_split=floats
    )


def main() -> None:
    """Record the named cases, by default all."""
    for name in sys.argv[1:] or [*CASES, *VLLM]:
        try:
            record_replay(name, CASES[name]) if name in CASES else record_vllm(name)
        except HarnessError as error:
            print(f"{name}: {error}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
