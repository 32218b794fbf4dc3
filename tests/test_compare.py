import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, Done
from runs import SUBJECT, write_run

from harness_llm.runs.record import Run

NS = 1_000_000


def percentiles(run: Run, milliseconds: float) -> Run:
    """LoadGen's latencies of a Server run: 50 and 99 percent, of first tokens, tokens after them, and answers."""
    names = ("first_token_{}_percentile_latency", "time_per_output_token_{}_percentile", "{}_percentile_latency")
    log = run.path / "mlperf_log_detail.txt"
    lines = [log.read_text()]
    for name in names:
        for percentile, factor in (("50.00", 1), ("99.00", 10)):
            value = {"key": f"result_{name.format(percentile)}_ns", "value": milliseconds * factor * NS}
            lines.append(f":::MLLOG {json.dumps(value | {'metadata': {'is_error': False, 'is_warning': False}})}\n")
    log.write_text("".join(lines))
    return run


def write_pair(logs: Path, hour: int, rate: float, rouge: float, ttft_ms: float, **changes: Any) -> Path:
    """A performance and an accuracy run of Server; returns the scenario's folder."""
    facts = {"hour": hour, "run_facts": {"samples": 2048}} | changes
    run = write_run(logs, "Server", "performance", metrics={"tokens_per_second": rate}, **facts)
    write_run(logs, "Server", "accuracy", metrics={"ROUGE1": rouge}, **facts)
    return percentiles(run, ttft_ms).path.parent


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return lambda *words: CommandLine(monkeypatch, capsys)("compare", *map(str, words))


@pytest.fixture
def before(tmp_path: Path) -> Path:
    fingerprint = SUBJECT | {"engine": "transformers"}
    return write_pair(tmp_path, 0, 100.0, 40.0, 50.0, fingerprint=fingerprint, profile="fast")


@pytest.fixture
def after(tmp_path: Path) -> Path:
    return write_pair(tmp_path, 1, 250.0, 41.0, 20.0, fingerprint=SUBJECT | {"engine": "vllm"})


def test_figures_of_two_runs_are_compared(compare: Callable[..., Done], before: Path, after: Path) -> None:
    found = json.loads(compare(before, after, "--json").out)["Server"]
    assert found["states"] == {test: {"a": "VALID", "b": "VALID"} for test in ("accuracy", "performance")}
    assert found["figures"]["tokens_per_second"] == {"a": 100.0, "b": 250.0, "ratio": 2.5}
    assert found["figures"]["ROUGE1"] == {"a": 40.0, "b": 41.0, "ratio": 1.025}
    for name in ("ttft", "tpot", "latency"):
        assert found["figures"][f"p50_{name}_ms"] == {"a": 50.0, "b": 20.0, "ratio": 0.4}
        assert found["figures"][f"p99_{name}_ms"] == {"a": 500.0, "b": 200.0, "ratio": 0.4}
    assert found["differences"] == ["engine: transformers vs vllm", "profile: fast vs smoke"]


def test_predictions_and_their_errors_are_compared(compare: Callable[..., Done], tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path, "Offline", "performance", hour=hour, prediction={"samples_per_second": rate, "error": error}
        )
        for hour, rate, error in ((0, 90.0, -0.1), (1, 99.0, 0.02))
    ]
    found = json.loads(compare(*(run.path.parent for run in runs), "--json").out)["Offline"]["figures"]
    assert found["prediction_samples_per_second"] == {"a": 90.0, "b": 99.0, "ratio": 1.1}
    assert (found["prediction_error"]["a"], found["prediction_error"]["b"]) == (-0.1, 0.02)


def test_comparison_is_printed_as_a_table(compare: Callable[..., Done], before: Path, after: Path) -> None:
    done = compare(before, after)
    assert (done.code, done.err) == (0, "")
    rows = [" ".join(line.replace("│", " ").split()) for line in done.out.splitlines()]
    for row in (
        f"A: {before}",
        f"B: {after}",
        "tokens_per_second 100.00 250.00 2.50",
        "differs: profile: fast vs smoke",
    ):
        assert row in rows


def test_comparison_includes_files_beside_a_run(compare: Callable[..., Done], before: Path, after: Path) -> None:
    whole = compare(before, after, "--json").out
    assert compare(before / "accuracy", after / "performance", "--json").out == whole
    assert compare(before.parents[2], after.parent, "--json").out == whole


def test_figure_missing_from_one_run_is_left_empty(compare: Callable[..., Done], tmp_path: Path, before: Path) -> None:
    write_run(tmp_path, "Offline", "performance", hour=2)
    alone = write_run(tmp_path, "Server", "performance", hour=2, state="INVALID", metrics={}).path
    found = json.loads(compare(before, alone, "--json").out)["Server"]
    assert found["states"] == {"accuracy": {"a": "VALID", "b": None}, "performance": {"a": "VALID", "b": "INVALID"}}
    assert found["figures"]["ROUGE1"] == {"a": 40.0, "b": None, "ratio": None}
    assert "only B has Offline" in compare(before, alone.parents[1]).out


def test_folders_without_runs_are_refused(
    compare: Callable[..., Done], tmp_path: Path, before: Path, after: Path
) -> None:
    other = write_run(tmp_path, "Server", "performance", hour=3, benchmark="gptj").path
    offline = write_run(tmp_path, "Offline", "performance", hour=4).path
    running = write_run(tmp_path, "Server", "performance", hour=5, finished=False).path
    (tmp_path / "empty").mkdir()
    for folder, said in (
        (tmp_path / "nowhere", "there is no such folder"),
        (tmp_path / "empty", "no run found"),
        (other, "the runs are of different benchmarks"),
        (offline, "the runs have no scenario in common"),
        (running, "a run has no record"),
        (tmp_path, "several runs of demo/Server"),
    ):
        done = compare(before, folder)
        assert done.code == 2, said
        assert said in done.err
