"""Soak test: replicas are killed and restarted during many runs, and every query must be answered once.

    python -m benchmarks.soak --minutes 20

First, replicas of the replay engine in Server and Offline, with one process killed every 30 s; then replicas of vLLM,
with one killed every 180 s. The last line on stdout is one JSON document; the exit code is 4 if a query was not
answered or answered twice.
"""

import argparse
import itertools
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from benchmarks.replayed import replay_bench, with_load
from benchmarks.session import demo_bench, demo_request
from harness_llm.errors import HarnessError, RunFailed
from harness_llm.evaluate.run_result import RunResult, Scorer
from harness_llm.hardware.device_lock import hold
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.runs.record import State

REPLICAS, PROCESSES = 8, 4
REPLAY_EVERY_S, VLLM_EVERY_S = 30, 180
SERVER_QPS, OFFLINE_QUERIES, RUN_S = 300.0, 100_000, 45.0
DEMO_QPS = 20.0
# An answer takes 1 s: at each kill, many queries are in flight, and none of them at three kills.
SETS = (
    f"replay_config.processes={PROCESSES}",
    "replay_config.prefill_tokens_per_s=0",
    "replay_config.step_s=0.005",
    "replay_config.output_tokens=100",
    "replay_config.output_spread=0.5",
    "replay_config.step_s_per_sequence=0",
    "llm_config.max_num_seqs=512",
)


class Once(Scorer):
    """Requires of an accuracy run only one answer to every sample."""

    def judge(self, run: Path, samples: int, *, enforce: bool) -> RunResult:  # noqa: ARG002 - there is no score
        """Raise RunFailed unless every sample has one answer."""
        answered = sorted(answer.qsl_idx for answer in read_accuracy_log(run / ACCURACY))
        require_once(run, answered == list(range(samples)), f"{len(answered)} answers to {samples} samples")
        return RunResult(State.VALID)


def require_once(run: Path, once: bool, found: str) -> None:
    """Raise RunFailed unless every query was answered once and LoadGen logged no error."""
    errors = parse_detail(run / DETAIL).errors
    if not once or errors:
        raise RunFailed(
            "queries without exactly one answer", where=str(run), found="; ".join([found, *map(str, errors)])
        )


class Killer:
    """Kills the processes of a replica pool in turn, one every `every_s` seconds."""

    def __init__(self, pool: ReplicaPool, every_s: float) -> None:
        """Start with the first process."""
        self.kills = 0
        self._pool, self._every_s = pool, every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._kill, daemon=True)
        self._thread.start()

    def _kill(self) -> None:
        for number in itertools.count():
            if self._over.wait(self._every_s):
                return
            running = self._pool.replicas
            psutil.Process(running[number % len(running)].process.pid).send_signal(signal.SIGKILL)
            self.kills += 1

    def stop(self) -> None:
        """Stop killing."""
        self._over.set()
        self._thread.join()


@dataclass
class Soak:
    """Totals so far."""

    console: Console
    runs: int = 0
    queries: int = 0
    kills: int = 0
    losses: int = 0

    def progress(self, body: Mapping[str, Any]) -> None:
        """Record a status of LoadGen's process."""
        if body["event"] == "finished":
            self.queries += body["done"]

    def soak(self, bench: ScenarioContext, load: Mapping[str, Any], every_s: float, seconds: float) -> None:
        """Execute performance and accuracy runs alternately for `seconds`."""
        bench = replace(bench, scorer=Once(bench.scorer.benchmark, bench.scorer.variants, bench.scorer.assets))
        killer, until = Killer(bench.pool, every_s), time.monotonic() + seconds
        try:
            for test in itertools.cycle(("performance", "accuracy")):
                if time.monotonic() > until:
                    return
                bench.pool.await_restarts(lambda _: None)
                self._run(with_load(bench, **load), test)
        finally:
            killer.stop()
            self.kills += killer.kills

    def _run(self, bench: ScenarioContext, test: str) -> None:
        before = self.queries
        run = execute_run(bench, test, self)
        answers = self.queries - before
        self.runs += 1
        self.losses += sum("queries were requeued" in text for text in (*run.reasons, *run.notes))
        if test == "performance":
            log = parse_detail(run.path / DETAIL)
            issued = int(log.number("generated_query_count") * log.number("generated_samples_per_query"))
            require_once(
                run.path, self.queries - before == issued, f"{self.queries - before} answers, {issued} queries"
            )
        self.console.print(f"{run.run_key}: {run.state}, {answers:,} queries; {'; '.join((*run.reasons, *run.notes))}")


@contextmanager
def _vllm(console: Console) -> Iterator[ScenarioContext]:
    request = demo_request("Server", replicas=2)
    with hold(request.options.gpu, "make soak"), demo_bench(request, Panel(console)) as bench:
        yield bench


def run(minutes: float, console: Console) -> Soak:
    """Use a quarter of the time each for Server and Offline with the replay engine, the rest for vLLM."""
    soak, quarter = Soak(console), minutes * 60 / 4
    with tempfile.TemporaryDirectory() as folder:
        for scenario, load in (
            ("Server", {"qps": SERVER_QPS, "seconds": RUN_S}),
            ("Offline", {"qps": 1.0, "queries": OFFLINE_QUERIES}),
        ):
            with replay_bench(Path(folder), scenario, REPLICAS, *SETS) as bench:
                soak.soak(bench, load, REPLAY_EVERY_S, quarter)
    with _vllm(console) as bench:
        soak.soak(bench, {"qps": DEMO_QPS, "seconds": RUN_S}, VLLM_EVERY_S, 2 * quarter)
    return soak


def main() -> None:
    """Run the soak test; report errors like the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=20, help="duration (default %(default)s)")
    arguments = parser.parse_args()
    try:
        soak = run(arguments.minutes, Console(stderr=True))
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    facts = {"runs": soak.runs, "queries": soak.queries, "kills": soak.kills, "losses": soak.losses}
    sys.stdout.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
