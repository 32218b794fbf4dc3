import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine, Done
from runs import SUBJECT, recorded_node, write_run

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


def figure(found: dict[str, Any], name: str) -> tuple[float | None, float | None, float | None]:
    values = found["figures"][name]
    return values["a"], values["b"], values["ratio"]


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
    assert figure(found, "tokens_per_second") == (100.0, 250.0, 2.5)
    assert figure(found, "ROUGE1") == (40.0, 41.0, 1.025)
    for name in ("ttft", "tpot", "latency"):
        assert figure(found, f"p50_{name}_ms") == (50.0, 20.0, 0.4)
        assert figure(found, f"p99_{name}_ms") == (500.0, 200.0, 0.4)
    assert found["differences"] == ["engine: transformers vs vllm", "profile: fast vs smoke"]


def test_keys_of_user_conf_are_compared_one_by_one(compare: Callable[..., Done], tmp_path: Path) -> None:
    lines = "demo.Server.performance_sample_count_override = 24576\ndemo.Server.target_qps = {}\n"
    runs = [
        write_run(tmp_path, "Server", "performance", hour=hour, run_facts={"user_conf": lines.format(target)})
        for hour, target in enumerate((45, 50))
    ]
    found = json.loads(compare(*(run.path for run in runs), "--json").out)["Server"]
    assert found["differences"] == ["user_conf.demo.Server.target_qps: 45 vs 50"]


def test_predictions_and_their_errors_are_compared(compare: Callable[..., Done], tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path, "Offline", "performance", hour=hour, prediction={"samples_per_second": rate, "error": error}
        )
        for hour, rate, error in ((0, 90.0, -0.1), (1, 99.0, 0.02))
    ]
    found = json.loads(compare(*(run.path.parent for run in runs), "--json").out)["Offline"]
    assert figure(found, "prediction_samples_per_second") == (90.0, 99.0, 1.1)
    assert figure(found, "prediction_error")[:2] == (-0.1, 0.02)


def test_comparison_is_printed_as_a_table(compare: Callable[..., Done], before: Path, after: Path) -> None:
    done = compare(before, after)
    assert (done.code, done.err) == (0, "")
    rows = [" ".join(line.replace("│", " ").split()) for line in done.out.splitlines()]
    for row in (
        f"A: {before}",
        f"B: {after}",
        "tokens_per_second 100.00 250.00 2.500 -",
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
    assert figure(found, "ROUGE1") == (40.0, None, None)
    assert "only B has Offline" in compare(before, alone.parents[1]).out


def test_folders_without_runs_are_refused(
    compare: Callable[..., Done], tmp_path: Path, before: Path, after: Path
) -> None:
    other = write_run(tmp_path, "Server", "performance", hour=3, benchmark="gptj").path
    offline = write_run(tmp_path, "Offline", "performance", hour=4).path
    running = write_run(tmp_path, "Server", "performance", hour=5, finished=False).path
    (tmp_path / "empty").mkdir()
    for folder, said in (
        (tmp_path / "nowhere", "no such folder"),
        (tmp_path / "empty", "no run found"),
        (other, "the runs are of different benchmarks"),
        (offline, "the runs have no scenario in common"),
        (running, "a run has no record"),
        (f"{before},{other}", "runs of several benchmarks"),
        (tmp_path, "different settings"),
        (f"{before},{after}", "different settings"),
    ):
        done = compare(before, folder)
        assert done.code == 2, said
        assert said in done.err


A, B = (100.0, 100.5, 99.5), (95.0, 95.5, 94.5)


def side(logs: Path, hours: int, rates: Sequence[float], **changes: Any) -> str:
    """Performance runs of Offline with these rates, as an argument of `compare`."""
    runs = [
        write_run(logs, "Offline", "performance", hour=hours + i, metrics={"tokens_per_second": rate}, **changes)
        for i, rate in enumerate(rates)
    ]
    return ",".join(str(run.path) for run in runs)


def verdict(done: Done) -> dict[str, Any]:
    (found,) = json.loads(done.out)["Offline"]["verdicts"]
    return dict(found)


def test_three_runs_per_side_show_a_difference(compare: Callable[..., Done], tmp_path: Path) -> None:
    a, b = side(tmp_path, 0, A), side(tmp_path, 10, B)
    found = verdict(compare(a, b, "--json"))
    assert (found["judgement"], found["name"]) == ("slower", "tokens_per_second")
    assert found["speed"] == pytest.approx(0.95)
    # Welch's interval of the logarithms: standard error 0.0042 with 4 degrees of freedom (rounded down to 3)
    assert (found["interval"]["low"], found["interval"]["high"]) == pytest.approx((0.9374, 0.9628), abs=2e-4)
    assert verdict(compare(b, a, "--json"))["judgement"] == "faster"
    out = " ".join(compare(a, b).out.split())
    assert "B against A: slower: tokens_per_second, speed -5.00 % (95% interval -6.2" in out
    assert "3 VALID" in out


def test_unfinished_runs_beside_a_run_are_ignored(compare: Callable[..., Done], tmp_path: Path) -> None:
    run = side(tmp_path, 0, [100.0])
    write_run(tmp_path, "Offline", "accuracy", finished=False)
    done = compare(run, Path(run).parent, "--json")
    assert json.loads(done.out)["Offline"]["states"] == {"performance": {"a": "VALID", "b": "VALID"}}


def test_repeats_may_differ_in_host_and_counters(compare: Callable[..., Done], tmp_path: Path) -> None:
    runs = [
        side(
            tmp_path,
            hour,
            [100.0 + hour],
            nodes={"": recorded_node({"kernel": str(hour)})},
            run_facts={"counters": {"hits": hour}},
        )
        for hour in range(3)
    ]
    assert compare(",".join(runs), ",".join(runs)).code == 0


def test_noise_is_no_difference(compare: Callable[..., Done], tmp_path: Path) -> None:
    found = compare(side(tmp_path, 0, A), side(tmp_path, 10, (100.2, 99.9, 100.1)))
    assert "B against A: no difference beyond noise: tokens_per_second, speed +0.07 %" in found.out


@pytest.mark.parametrize(
    ("b", "code", "said"),
    [
        (B, 1, "slower by more than 2 %: Offline: slower: tokens_per_second"),
        (A, 0, ""),
        ((105.0, 105.5, 104.5), 0, ""),
        ((98.0, 98.2, 97.9), 3, "inconclusive whether slower by more than 2 %: Offline: slower"),
        ((100.0, 90.0, 110.0), 3, "inconclusive whether slower by more than 2 %: Offline: no difference"),
        (B[:2], 3, "A has 3 and B 2 of the 3 runs needed on each side"),
    ],
)
def test_exit_code_for_slower_runs(
    compare: Callable[..., Done], tmp_path: Path, b: Sequence[float], code: int, said: str
) -> None:
    done = compare(side(tmp_path, 0, A), side(tmp_path, 10, b), "--fail-if-slower", "2%")
    assert done.code == code
    assert said in done.err
    assert bool(done.err) == bool(code)


def test_median_tpot_judges_a_scenario_with_fixed_arrivals(compare: Callable[..., Done], tmp_path: Path) -> None:
    logs = [tmp_path / name for name in "ab"]
    for folder, slow in zip(logs, (1.0, 1.1), strict=True):
        for hour, noise in enumerate((1, 1.002, 0.998)):
            run = write_run(folder, "Server", "performance", hour=hour, metrics={"tokens_per_second": 100.0})
            percentiles(run, 50 * slow * noise)
    done = compare(*logs, "--fail-if-slower=5%")
    assert done.code == 1
    assert "slower by more than 5 %: Server: slower: p50_tpot_ms, speed -9.09 %" in done.err
    assert "no difference beyond noise: tokens_per_second" in done.out


@pytest.mark.parametrize("text", ["2", "0.02", "x%", "-1%", "100%", "nan%"])
def test_wrong_percentage_is_refused(compare: Callable[..., Done], before: Path, text: str) -> None:
    done = compare(before, before, f"--fail-if-slower={text}")
    assert done.code == 2
    assert "a percentage below 100, such as 2%" in done.err


def record_queries(run: str, rate: float, seed: int) -> None:
    """queries.parquet of an Offline run of 600 s; one of the queries did not complete."""
    random = np.random.default_rng(seed)
    completion = np.sort(random.uniform(0, 600, int(rate * 600)))
    size = len(completion)
    columns = {
        "issue_s": np.zeros(size),
        "send_s": completion - 5,
        "first_token_s": pa.nulls(size, pa.float64()),
        "completion_s": pa.array([*completion[:-1], None]),
        "output_tokens": pa.array(np.full(size, 10), pa.int32()),
        "replica": pa.array(["replica-0"] * size).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), Path(run, "queries.parquet"))


def test_single_runs_have_an_interval_within_the_runs(compare: Callable[..., Done], tmp_path: Path) -> None:
    a, b = side(tmp_path, 0, [100.0]), side(tmp_path, 10, [120.0])
    record_queries(a, 10, 1)
    found = verdict(compare(a, b, "--json"))
    assert (found["judgement"], found["interval"]) == ("inconclusive", None)
    assert "no interval within the runs (B: no queries.parquet, or too short a run)" in found["reason"]
    record_queries(b, 12, 2)
    found = verdict(compare(a, b, "--json"))
    assert found["judgement"] == "inconclusive"
    assert 1.1 < found["interval"]["low"] < 1.2 < found["interval"]["high"] < 1.3
    assert "A has 1 and B 1 of the 3 runs needed" in found["reason"]
    Path(b, "queries.parquet").write_bytes(b"PAR1")
    assert "unreadable record of a run" in compare(a, b).err


def test_degraded_runs_do_not_count_as_repeats(compare: Callable[..., Done], tmp_path: Path) -> None:
    a, b = side(tmp_path, 0, A), side(tmp_path, 10, B, state="DEGRADED")
    found = verdict(compare(a, b, "--json"))
    assert found["judgement"] == "inconclusive"
    assert "B 0 of the 3 runs" in found["reason"]
    assert found["speed"] == pytest.approx(0.945)
