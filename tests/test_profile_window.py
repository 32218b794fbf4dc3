"""Window of a run that is profiled: with processes that act as replicas, and in a real run of the demo with vLLM."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from terminal import Terminal

from harness_llm.config.duration import parse_duration
from harness_llm.config.options import Options
from harness_llm.config.request import load_request
from harness_llm.errors import ConfigError, ProcessFailed, RunFailed
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.pipeline import profile_window
from harness_llm.pipeline.profile_window import ProfileWindow
from harness_llm.pipeline.profiling import Profiling, check_profiling
from harness_llm.protocol.child_processes import start
from harness_llm.replicas.pool import ReplicaPool
from harness_llm.replicas.pool_folder import PoolFolder
from harness_llm.runs.record import State, find_runs

ENVIRONMENT = {"PYTHONPATH": f"{Path(__file__).parent}:{CHECKOUT}"}
TOTAL = 1000

Make = Callable[..., ProfileWindow]


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the window, to be set."""
    time = SimpleNamespace(s=50.0)
    monkeypatch.setattr(profile_window, "time", SimpleNamespace(monotonic=lambda: time.s))
    return time


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Make the window of a run of two replicas; the second fails if `fails` is set."""
    pools: list[ReplicaPool] = []
    traces = tmp_path / "traces"

    def make(fails: str = "") -> ProfileWindow:
        pool = ReplicaPool(PoolFolder(), [0], startup_timeout_s=60)
        pools.append(pool)
        words = {name: ["profiling", str(traces / name), *[fails] * (name == "b")] for name in "ab"}
        log = tmp_path / "log"
        pool.start(
            {
                name: lambda _, name=name: start("child", words[name], name=name, log=log, environment=ENVIRONMENT)
                for name in words
            },
            lambda _: None,
        )
        (tmp_path / "run").mkdir()
        return ProfileWindow(Profiling(3, traces), TOTAL, pool)

    yield make
    for pool in pools:
        pool.stop()


def run_until(window: ProfileWindow, now: SimpleNamespace, last: int) -> None:
    """A run of 20 s with a status message each second, until `last` samples are answered."""
    window.progress({"event": "started"})
    for done in range(0, last + 1, 50):
        window.progress({"event": "progress", "done": done, "issued": TOTAL})
        now.s += 1


@pytest.mark.processes
def test_window_begins_in_steady_state_and_its_traces_are_moved_to_the_run(
    make: Make, now: SimpleNamespace, tmp_path: Path
) -> None:
    window = make()
    run_until(window, now, TOTAL)
    assert window.profiled_s == 3
    reason = window.finish(tmp_path / "run")
    traces = [f"profile/{name}/rank-0.1.pt.trace.json.gz" for name in "ab"]
    assert all((tmp_path / "run" / trace).is_file() for trace in traces)
    assert reason == (
        f"profiled for 3.0 s, 5.0 s after the start, which slows the run: no result; 2 traces, the first is {traces[0]}"
    )


@pytest.mark.processes
def test_window_ends_with_the_run(make: Make, now: SimpleNamespace, tmp_path: Path) -> None:
    window = make()
    run_until(window, now, TOTAL // 4)
    assert "2 traces" in window.finish(tmp_path / "run")
    assert window.profiled_s == 1


@pytest.mark.processes
def test_run_that_ends_before_steady_state_fails(make: Make, now: SimpleNamespace, tmp_path: Path) -> None:
    window = make()
    run_until(window, now, 0)
    window.progress({"event": "progress", "done": TOTAL, "issued": TOTAL})
    with pytest.raises(RunFailed, match="no trace"):
        window.finish(tmp_path / "run")


@pytest.mark.processes
def test_replica_that_fails_while_it_writes_its_trace_fails_the_run(
    make: Make, now: SimpleNamespace, tmp_path: Path
) -> None:
    window = make(fails="yes")
    run_until(window, now, TOTAL)
    with pytest.raises(ProcessFailed, match="b failed"):
        window.finish(tmp_path / "run")


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"engine": "replay"}, "--engine replay"),
        ({"tests": ("performance", "accuracy")}, "--tests performance,accuracy"),
        ({"ray": "head:6379"}, "--ray head:6379"),
        ({"profile_window": "soon"}, "soon"),
    ],
)
def test_requests_that_cannot_be_profiled_are_refused(changes: dict[str, object], found: str) -> None:
    words = {"model": "demo", "gpu": "cpu", "engine": "vllm", "tests": ("performance",), "profile_window": "30s"}
    check_profiling(load_request(Options(**words), Workspace(CHECKOUT)))
    with pytest.raises(ConfigError) as caught:
        check_profiling(load_request(Options(**{**words, **changes}), Workspace(CHECKOUT)))
    assert caught.value.where == "--profile-window"
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30), ("30s", 30), ("1.5m", 90), (" 2h ", 7200), ("0s", 0), ("-3s", 0), ("3 days", 0)]
)
def test_durations_have_a_unit(text: str, seconds: float) -> None:
    if seconds:
        assert parse_duration(text, "--budget") == seconds
        return
    with pytest.raises(ConfigError, match="invalid duration"):
        parse_duration(text, "--budget")


@pytest.mark.slow
@pytest.mark.engine(seconds=120)
@pytest.mark.processes
def test_profiled_run_of_vllm_has_a_trace_and_is_never_packaged(terminal: Terminal) -> None:
    words = ("--model", "demo", "--gpu", "cpu", "--scenarios", "Server", "--system-name", "profiled-box")
    ended = terminal.start("run", *words, "--profile-window", "1s").wait()
    assert ended.code == 0, ended.err
    [run] = find_runs(terminal.workspace.logs, "profiled-box")
    assert run.state is State.PROFILED
    [trace] = (run.path / "profile").rglob("*.pt.trace.json.gz")
    with gzip.open(trace) as file:
        assert any(
            event.get("name") == "aten::mm" or "gemm" in event.get("name", "")
            for event in json.load(file)["traceEvents"]
        )
    status = terminal.start("status", *words, "--json").wait()
    assert '"PROFILED"' in status.out
    packaged = terminal.start("package", *words, "--company", "Acme").wait()
    assert packaged.code == 1
    assert "PROFILED" in packaged.err
