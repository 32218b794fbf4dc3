"""Runs of the real LoadGen against correct and faulty servers over HTTP: how each ends, and what is recorded."""

import datetime as dt
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cells
import msgspec
import psutil
import pytest
from real_loadgen import needs_loadgen
from rich.console import Console
from token_server import TokenServer, answer_to
from workspaces import make_workspace

pytest.importorskip("aiohttp")
if find_spec("vllm") is None:  # config knows its arguments from its source
    pytest.skip("vLLM is not installed", allow_module_level=True)

from harness_llm.config.assets import Assets
from harness_llm.config.options import choose
from harness_llm.config.request import Request, resolve
from harness_llm.errors import RunFailed
from harness_llm.evaluate.run_result import RunResult, Scorer
from harness_llm.loadgen.logs import ACCURACY, DETAIL, parse_detail, read_accuracy_log
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.run import ScenarioContext, execute_run
from harness_llm.pipeline.run_monitor import Watcher
from harness_llm.pipeline.submit import Pipeline
from harness_llm.protocol.child_processes import Child, start
from harness_llm.protocol.token_store import write_store
from harness_llm.replicas import pool as replica_pool
from harness_llm.replicas.local import Launcher, launch, start_pool
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.replicas.replica import ReplicaSpec
from harness_llm.runs.fingerprint import source_digest
from harness_llm.runs.record import Run, RunRecord, State, load_run

pytestmark = needs_loadgen

SAMPLES = 60
WARM_UP = 8
BEFORE = 2 + WARM_UP  # completions until a replica pool is ready: the engine's own two, and the calibration prompts
PROGRAM = Path(__file__).with_name("token_server.py")
TARGETS = """
llama2-70b.Offline.target_qps = 500
llama2-70b.Server.target_qps = 60
llama2-70b.SingleStream.target_latency = 100
"""
SETS = ("harness_config.warm_up_tokens=4", f"llm_config.max_num_seqs={WARM_UP}", "harness_config.backlog=4")
PROMPTS = [[7 + index, 8, 9 + index % 7] for index in range(SAMPLES)]
BOUND_S = 10  # what a run may take to end that cannot go on
NOTHING = {"cache_hits": 0, "speculated": 0, "drafts": 0}  # counters of a server that neither caches nor speculates
_started = itertools.count()


class Unscored(Scorer):
    """Answers of a server that has no model are not worth a score."""

    def judge(self, run: Path, samples: int, *, enforce: bool) -> RunResult:
        log = parse_detail(run / DETAIL)
        return RunResult(State.INVALID if log.errors else State.VALID, [str(error) for error in log.errors])


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    workspace = make_workspace(tmp_path_factory.mktemp("workspace"))
    (workspace.user_confs / "user_cpu.conf").write_text(TARGETS)
    return workspace


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Assets:
    folder = tmp_path_factory.mktemp("assets")
    (folder / "config.json").write_text(json.dumps({"vocab_size": 512}))
    write_store(folder / "evaluation", PROMPTS, ["text"] * SAMPLES)
    write_store(folder / "calibration", PROMPTS[:WARM_UP], ["text"] * WARM_UP)
    return Assets(folder, folder, {"evaluation": folder / "evaluation"}, folder / "calibration")


def request_for(workspace: Workspace, scenario: str, *sets: str, samples: int = SAMPLES) -> Request:
    words = {
        "model": "demo",
        "gpu": "cpu",
        "scenarios": scenario,
        "profile": "smoke",
        "engine": "openai",
        "system_name": "pytest-box",
        "total_sample_count": samples,
        "set_": [*SETS, *sets],
    }
    request = resolve(choose(words), workspace)
    started = dt.datetime(2026, 7, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=next(_started))
    return replace(request, profile=request.profile.model_copy(update={"probe_s": 0}), started=started)


@contextmanager
def a_fleet(
    request: Request, assets: Assets, workspace: Workspace, launcher: Launcher = launch
) -> Iterator[ReplicaPool]:
    pool = start_pool(
        request.scenarios[0].config,
        engine="openai",
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=request.log_folder,
        cache=workspace.cache,
        report=lambda _: None,
        launcher=launcher,
    )
    try:
        yield pool
    finally:
        pool.stop()
        assert not [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]


def bench_of(request: Request, assets: Assets, pool: ReplicaPool) -> ScenarioContext:
    fingerprint = {"harness_llm": source_digest()}
    scorer = Unscored(request.benchmark, request.variants, assets)
    return ScenarioContext(request, request.scenarios[0], assets, scorer, fingerprint, pool)


def run(
    request: Request, assets: Assets, pool: ReplicaPool, test: str = "performance", watcher: Watcher | None = None
) -> Run:
    return execute_run(bench_of(request, assets, pool), test, watcher or cells.Watcher())


def right(index: int) -> list[int]:
    return answer_to(PROMPTS[index], {"stop_token_ids": [2], "max_tokens": 48})[0]


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
def test_answers_reach_loadgen_as_the_servers_sent_them(workspace: Workspace, assets: Assets, scenario: str) -> None:
    """Two servers that run already: a replica for each."""
    with TokenServer() as one, TokenServer() as other:
        request = request_for(workspace, scenario, f"server_config.url={one.url}/v1, {other.url}")
        with a_fleet(request, assets, workspace) as pool:
            assert len(pool.replicas) == 2
            done = run(request, assets, pool, "accuracy")
        assert min(one.posts, other.posts) > BEFORE
    assert done.state is State.VALID
    answers = read_accuracy_log(done.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(SAMPLES))
    for answer in answers:
        assert answer.ids.tolist() == right(answer.qsl_idx)
        if scenario == "Server":
            assert answer.first is not None
            assert answer.first.tolist() == right(answer.qsl_idx)[:1]
    assert record_of(done).run_facts["counters"] == NOTHING
    assert record_of(done).run_facts["violations"] == request.scenarios[0].violations


def record_of(done: Run) -> RunRecord:
    assert done.record
    return done.record


class Caching(TokenServer):
    """Counts a hit for every completion."""

    async def _complete(self, writer: Any, request: dict[str, Any]) -> None:
        self.hits += 1
        await super()._complete(writer, request)


@pytest.mark.parametrize(
    ("server", "counters", "violation"),
    [
        (Caching(), NOTHING | {"cache_hits": SAMPLES}, f"prompt tokens were taken from a cache: {SAMPLES}"),
        (TokenServer(metrics=False), None, "no cache hits in the server's metrics"),
    ],
    ids=["hits", "no proof"],
)
def test_without_proof_a_run_is_not_for_closed(
    workspace: Workspace, assets: Assets, server: TokenServer, counters: Any, violation: str
) -> None:
    with server:
        request = request_for(workspace, "Offline", f"server_config.url={server.url}")
        with a_fleet(request, assets, workspace) as pool:
            record = record_of(run(request, assets, pool, "accuracy"))
    assert record.state is State.VALID
    assert record.run_facts["counters"] == counters
    assert violation in record.run_facts["violations"][-1]
    assert violation in record.reasons[-1]


FAULTS = [
    ("status_500", "status 500 from the server"),
    ("closes_before", "Server disconnected"),
    ("closes_in_the_middle", "ClientPayloadError"),
    ("half_a_line", "no completion with token ids"),
    ("silent", "busy without a step for 2 s"),
]


@pytest.mark.parametrize("scenario", ["Offline", "Server"])
@pytest.mark.parametrize(("behave", "cause"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_of_the_server_ends_the_run(
    workspace: Workspace, assets: Assets, behave: str, cause: str, scenario: str
) -> None:
    if scenario == "Offline" and behave in {"closes_in_the_middle", "half_a_line"}:
        pytest.skip("Offline asks for whole answers, and these are streams")
    with TokenServer(behave, after=BEFORE + 20) as server:
        timeout = "harness_config.stall_timeout_s=2"
        request = request_for(workspace, scenario, f"server_config.url={server.url}", timeout)
        with a_fleet(request, assets, workspace) as pool, pytest.raises(RunFailed) as raised:
            run(request, assets, pool)
    failed = load_run(request.log_folder / scenario / "performance")
    assert failed.state is State.FAILED
    silent = behave == "silent" and "timeout of the server" in failed.reasons[0]  # the engine may notice first
    assert silent or cause in failed.reasons[0]
    assert raised.value.exit_code == 4


def test_a_server_of_its_own_that_is_killed_in_the_middle(workspace: Workspace, assets: Assets) -> None:
    command = f"{{python}} {PROGRAM} --port {{port}} --behave killed --after {BEFORE + 20}"
    request = request_for(workspace, "Server", f"server_config.command={command!r}")
    with a_fleet(request, assets, workspace) as pool, pytest.raises(RunFailed) as raised:
        run(request, assets, pool)
    assert "the server exited with code" in raised.value.found
    assert "token_server.py --port" in (request.log_folder / "server-0.log").read_text()


def test_a_replica_ends_after_its_server(workspace: Workspace, assets: Assets) -> None:
    """What is started next may want the memory of the accelerators; a server takes a moment to give it back."""
    command = f"{{python}} {PROGRAM} --port {{port}} --hold 1024"
    request = request_for(workspace, "Server", f"server_config.command={command!r}")
    with a_fleet(request, assets, workspace) as pool:
        family = psutil.Process(pool.replicas[0].process.pid).children(recursive=True)
    assert [process for process in family if process.is_running()] == []


def test_a_killed_replica_takes_its_server_along(workspace: Workspace, assets: Assets) -> None:
    request = request_for(workspace, "Server", f"server_config.command='{{python}} {PROGRAM} --port {{port}}'")
    with a_fleet(request, assets, workspace) as pool:
        replica = psutil.Process(pool.replicas[0].process.pid)
        family = replica.children(recursive=True)
        assert len(family) == 2  # the server guard and the server
        replica.kill()
        _, alive = psutil.wait_procs(family, timeout=10)
        assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]


# Replicas that are lost


class Breaks:
    """Does something to a replica once, when all queries in flight are those that the servers dawdle over."""

    def __init__(self, fault: Callable[[Child], object], replica: Child) -> None:
        self._fault, self._replica = fault, replica
        self._done = -1
        self.acted = 0.0

    def progress(self, body: Mapping[str, Any]) -> None:
        if not self.acted and body.get("in_flight") and body["done"] == self._done:
            self.acted = time.monotonic()
            self._fault(self._replica)
        self._done = body.get("done", -1)


def kill(replica: Child) -> None:
    replica.process.kill()


def halt(replica: Child) -> None:
    os.kill(replica.process.pid, signal.SIGSTOP)


def break_engine(replica: Child) -> None:
    """End the server that the replica has started, so that its engine raises."""
    [server] = [p for p in psutil.Process(replica.process.pid).children(recursive=True) if not p.children()]
    server.kill()


def hungry_file(replica: Child) -> Path:
    return replica.log.with_suffix(".hungry")


def starve(replica: Child) -> None:
    """Let the engine's next step ask for more memory than there is."""
    hungry_file(replica).touch()


def launch_hungry(name: str, specs: Sequence[ReplicaSpec], environment: Mapping[str, str], log: Path) -> Child:
    file = Path(environment["TMPDIR"]) / f"{name}.json"
    file.write_bytes(msgspec.json.encode(specs[0]))
    more = {"HUNGRY": str(log.with_suffix(".hungry")), "PYTHONPATH": str(PROGRAM.parent)}
    return start("hungry_replica", [str(file)], name=name, log=log, environment={**environment, **more})


def again(index: int) -> list[int]:
    """The answer of a second server, to which the first token of another was told."""
    first = right(index)[:1]
    return first + answer_to(PROMPTS[index] + first, {"stop_token_ids": [2], "max_tokens": 47})[0]


TWO = (
    f"server_config.command='{{python}} {PROGRAM} --port {{port}} --behave pauses --after {BEFORE}'",
    "harness_config.replicas=2",
    "harness_config.heartbeat_timeout_s=5",
)
CAUSES = {
    kill: "exit code -9",
    halt: "no heartbeat for 5 s",
    starve: "exception MemoryError",
    break_engine: "the server exited with code",
}
HELD = {"Offline": SAMPLES, "Server": SAMPLES, "SingleStream": 4}


@pytest.fixture(scope="module")
def two(workspace: Workspace, assets: Assets) -> Iterator[ReplicaPool]:
    """Two replicas, each with a server that dawdles over every fourth sample; each test mends what another broke."""
    request = request_for(workspace, "Server", *TWO)
    with pytest.MonkeyPatch.context() as patch, a_fleet(request, assets, workspace, launch_hungry) as pool:
        patch.setattr(replica_pool, "SHORT_S", 0.0)  # no test lasts so long that a life would count
        yield pool


@pytest.mark.parametrize("scenario", ["Offline", "Server", "SingleStream"])
@pytest.mark.parametrize("fault", CAUSES, ids=lambda fault: fault.__name__)
def test_queries_of_a_lost_replica_are_issued_again(
    workspace: Workspace, assets: Assets, two: ReplicaPool, scenario: str, fault: Callable[[Child], object]
) -> None:
    two.await_restarts(lambda _: None)
    request = request_for(workspace, scenario, *TWO, samples=HELD[scenario])
    broken = two.replicas[0]
    done = run(request, assets, two, "accuracy", Breaks(fault, broken))
    assert broken.process.returncode is not None, "it may wake up"
    assert done.state is State.VALID
    assert any(reason.startswith("replica-0 was lost") and CAUSES[fault] in reason for reason in done.reasons)
    answers = read_accuracy_log(done.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(HELD[scenario]))
    if scenario == "Offline":
        assert all(answer.ids.tolist() == right(answer.qsl_idx) for answer in answers)
        return
    for answer in answers:
        assert answer.ids.tolist() in (right(answer.qsl_idx), again(answer.qsl_idx))
        assert answer.first is not None
        assert answer.first.tolist() == answer.ids[:1].tolist()
    requeued = [answer for answer in answers if answer.ids.tolist() != right(answer.qsl_idx)]
    assert requeued, "with the tokens that were reported"


def test_a_measurement_that_lost_a_replica_is_made_once_more(
    workspace: Workspace, assets: Assets, two: ReplicaPool
) -> None:
    two.await_restarts(lambda _: None)
    request = request_for(workspace, "Server", *TWO)
    breaks = Breaks(kill, two.replicas[1])

    class Breaking(Panel):
        def progress(self, body: Mapping[str, Any]) -> None:
            breaks.progress(body)

    pipeline = Pipeline(request, Breaking(Console(stderr=True)), machine={})
    last = pipeline.run_test(bench_of(request, assets, two), "performance")
    first = load_run(request.log_folder / "Server" / "performance")
    assert first.state is State.DEGRADED
    assert first.reasons[0].startswith("replica-1 was lost (exit code -9)")
    assert last.path != first.path
    assert last.state in {State.VALID, State.INVALID}  # LoadGen's early stopping wants more queries
    assert not [reason for reason in last.reasons if "replica" in reason]


def test_a_lost_replica_may_end_the_run(workspace: Workspace, assets: Assets, two: ReplicaPool) -> None:
    two.await_restarts(lambda _: None)
    request = request_for(workspace, "Server", *TWO, "harness_config.on_replica_failure=fail")
    breaks = Breaks(kill, two.replicas[0])
    with pytest.raises(RunFailed, match="replica-0 failed") as raised:
        run(request, assets, two, "performance", breaks)
    assert time.monotonic() - breaks.acted < BOUND_S
    assert raised.value.where.endswith("replica-0.log")
    assert load_run(request.log_folder / "Server" / "performance").state is State.FAILED


@pytest.mark.parametrize(("fault", "bound_s"), [(kill, BOUND_S), (halt, BOUND_S + 8)])
def test_a_run_without_a_replica_has_failed(
    workspace: Workspace, assets: Assets, two: ReplicaPool, fault: Callable[[Child], object], bound_s: float
) -> None:
    """The last of this replica pool."""
    two.await_restarts(lambda _: None)
    request = request_for(workspace, "Server", *TWO)
    one, other = two.replicas
    breaks = Breaks(lambda replica: [fault(replica), fault(other)], one)
    with pytest.raises(RunFailed, match="failed") as raised:
        run(request, assets, two, "accuracy", breaks)
    assert time.monotonic() - breaks.acted < bound_s
    assert "the last lines of its log" in raised.value.found
    assert load_run(request.log_folder / "Server" / "accuracy").state is State.FAILED
