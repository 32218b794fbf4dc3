"""Diagnosis of recorded runs (tests/record_diagnosed_runs.py made them), and its statistics."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CommandLine, Done
from diagnosed_runs import path_of, tree
from runs import write_run

from harness_llm.analysis.diagnosis.causes import CAUSES, Cause
from harness_llm.analysis.diagnosis.diagnosis import Diagnosis, diagnose
from harness_llm.analysis.diagnosis.diagnosis_report import as_json, render
from harness_llm.analysis.diagnosis.explanation import Explanation, explain
from harness_llm.analysis.diagnosis.robust import slope, slowdowns
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.config.options import Options
from harness_llm.runs.record import State, load_run


def diagnosis_of(case: str) -> Diagnosis:
    return diagnose(read_run(path_of(case)))


QUEUE, SLOW, STALL, COLD = Cause.QUEUE_GROWTH, Cause.SLOW_REPLICA, Cause.STALL, Cause.WARM_UP_MISSING
TTFT, TPOT, CLIENT = Cause.TTFT_LIMIT, Cause.TPOT_LIMIT, Cause.CLIENT_LATE


@pytest.mark.parametrize(
    ("case", "found"),
    [
        ("overload", {QUEUE: set(), TTFT: {QUEUE}}),
        ("slow_replica_invalid", {SLOW: set(), QUEUE: {SLOW}, TTFT: {QUEUE, SLOW}, TPOT: {QUEUE, SLOW}}),
        ("slow_replica_valid", {SLOW: set()}),
        ("slow_replica_offline", {SLOW: set()}),
        ("long_prompts", {TTFT: set()}),
        ("large_batches", {TPOT: set()}),
        ("too_short", {Cause.TOO_SHORT: set()}),
        ("too_few", {Cause.TOO_FEW_QUERIES: set()}),
        ("slow_loadgen", {CLIENT: set(), QUEUE: {CLIENT}, TTFT: {QUEUE, CLIENT}, TPOT: {QUEUE, CLIENT}}),
        ("starved", {Cause.STARVED_BATCH: set(), Cause.DRAIN_TAIL: set()}),
        ("long_answer", {Cause.DRAIN_TAIL: set()}),
        ("stall", {STALL: set(), TPOT: {STALL}}),
        ("cold", {COLD: set(), TTFT: {COLD}, TPOT: {COLD}}),
        ("killed", {Cause.REPLICA_FAILED: set()}),
        ("preemptions", {Cause.PREEMPTION: set()}),
        ("probe_offline", {Cause.TOO_SHORT: set()}),
    ],
)
def test_provoked_cause_is_named_first(case: str, found: dict[Cause, set[Cause]]) -> None:
    made = tree(diagnosis_of(case))
    assert list(made.items()) == list(found.items())


@pytest.mark.parametrize("case", ["healthy_server", "healthy_offline", "healthy_vllm"])
def test_healthy_run_has_no_cause(case: str) -> None:
    diagnosis = diagnosis_of(case)
    assert diagnosis.findings == ()
    assert not diagnosis.unrecorded


@pytest.mark.parametrize(
    ("case", "setting", "low", "high"),
    [
        # Three replicas sustain about 100 queries/s.
        ("overload", "llama2-70b.Server.target_qps", 60, 100),
        ("slow_replica_invalid", "llama2-70b.Server.target_qps", 50, 78),
        ("long_prompts", "llm_config.max_num_batched_tokens", 512, 512),
        # A step takes 20 ms, 1 ms per query and the prompts: at most 35 queries meet 55 ms.
        ("large_batches", "llm_config.max_num_seqs", 10, 35),
        ("too_short", "llama2-70b.Offline.target_qps", 95, 120),
        ("cold", "harness_config.warm_up_tokens", 512, 512),
        ("slow_loadgen", "harness_config.loadgen_cpus", 2, 2),
        ("starved", "harness_config.backlog", 64, 64),
        ("preemptions", "llm_config.max_num_seqs", 15, 45),
    ],
)
def test_next_value_is_near_the_known_one(case: str, setting: str, low: float, high: float) -> None:
    first = diagnosis_of(case).findings[0].settings[0]
    assert first.name == setting
    assert low <= float(first.following) <= high


@pytest.mark.parametrize(
    ("options", "file"),
    [
        ({"gpu": "h100"}, "code/user_h100.conf"),
        ({"gpu": "h100", "gpu_count": 8}, "code/user_h100.conf"),
        ({"gpu": "h100", "gpu_count": 4}, "code/user_h100_4gpu.conf"),
        ({"gpu": "h100", "gpu_count": 4, "user_conf": Path("/srv/my targets.conf")}, "/srv/my targets.conf"),
        ({"gpu": "cpu", "stand_in": True}, "code/user_stand-in.conf"),
    ],
)
def test_target_is_in_the_file_that_the_run_used(options: dict[str, Any], file: str) -> None:
    data = read_run(path_of("overload"))
    record = data.record.model_copy(update={"command": Options(model="llama2-70b", **options).command("Server")})
    assert diagnose(replace(data, record=record)).findings[0].settings[0].where == file


@pytest.mark.parametrize(
    ("profile", "above", "settings"),
    [
        ("smoke", 2, [("--profile", "fast or valid"), ("min_query_count", "")]),
        ("fast", 2, [("--profile", "valid"), ("min_query_count", "")]),
        ("valid", 2, [("min_query_count", "")]),
        ("valid", 3, [("target_qps", "47.5"), ("min_query_count", "")]),
    ],
)
def test_remedy_of_too_few_queries(profile: str, above: int, settings: list[tuple[str, str]]) -> None:
    """The run has 200 queries: more of them do not help if 1.5 % are above a limit."""
    data = read_run(path_of("too_few"))
    assert data.queries
    late = np.where(np.arange(200) < above, 3.0, 0.0)
    columns = {name: data.queries[name] + late for name in ("first_token_s", "completion_s")}
    record = data.record.model_copy(update={"profile": profile})
    found = diagnose(replace(data, record=record, queries={**data.queries, **columns})).findings
    [finding] = [finding for finding in found if finding.cause is Cause.TOO_FEW_QUERIES]
    assert [(one.name.rpartition(".")[2], one.following) for one in finding.settings] == settings
    assert ("longer profile" in finding.action) == (profile != "valid")
    assert ("lower the load" in finding.action) == (above == 3)


def test_queue_of_a_burst_grows_although_no_query_is_served_meanwhile() -> None:
    """All queries arrive before the first token, as in a run of less than a second."""
    data = read_run(path_of("overload"))
    assert data.queries
    issue = data.queries["issue_s"] / 100
    found = diagnose(replace(data, queries={**data.queries, "issue_s": issue, "send_s": issue}))
    assert found.findings[0].cause is QUEUE
    assert 60 < float(found.findings[0].settings[0].following) < 100


def test_stall_of_an_engine_with_long_steps_is_found() -> None:
    """Steps of 0.5 s: one second without a step is usual, five in a row are a stall."""
    data = read_run(path_of("healthy_server"))
    assert data.replicas
    steps = np.where(np.isnan(data.replicas["steps"]), np.nan, 2.0)
    own = np.flatnonzero(data.replicas["replica"] == "replica-1")
    assert tree(diagnose(replace(data, replicas={**data.replicas, "steps": steps}))) == {}
    for seconds, causes in ((1, []), (6, [STALL])):
        changed = steps.copy()
        changed[own[6 : 6 + seconds]] = 0
        found = diagnose(replace(data, replicas={**data.replicas, "steps": changed})).findings
        assert [finding.cause for finding in found] == causes
        assert all(finding.replicas == ("replica-1",) for finding in found)


def test_engine_that_reports_no_steps_has_neither_stall_nor_cold_start() -> None:
    data = read_run(path_of("healthy_server"))
    assert data.replicas
    steps, own = data.replicas["steps"].copy(), np.flatnonzero(data.replicas["replica"] == "replica-1")
    steps[own[:4]] = steps[own[6:12]] = 0
    seldom = {**data.replicas, "steps": steps}
    assert set(tree(diagnose(replace(data, replicas=seldom)))) == {STALL, COLD}
    unknown = {name: np.full(len(steps), np.nan) for name in ("running", "waiting", "steps")}
    assert tree(diagnose(replace(data, replicas=seldom | unknown))) == {}


def test_effects_are_near_the_provoked_ones() -> None:
    """The slow replica has 0.6 of the speed; the stalled one was stopped for 7 s of 17 s."""
    [slow] = diagnosis_of("slow_replica_valid").findings
    assert slow.loss == pytest.approx((1 - 0.6) / 3, abs=0.03)
    assert "replica-2" in slow.summary
    stall = diagnosis_of("stall").findings[0]
    assert "replica-1" in stall.summary
    assert stall.loss == pytest.approx(7 / 17 / 3, abs=0.03)
    late = diagnosis_of("slow_loadgen").client
    assert late
    assert late.mean_late > 500
    healthy = diagnosis_of("healthy_server").client
    assert healthy
    assert healthy.mean_late < 5


def test_two_slow_replicas_explain_together() -> None:
    """Half of the slow replica's queries get another name, so that neither half alone explains the latencies."""
    data = read_run(path_of("slow_replica_invalid"))
    assert data.queries
    names = data.queries["replica"].copy()
    names[np.flatnonzero(names == "replica-1")[::2]] = "replica-9"
    diagnosis = diagnose(replace(data, queries={**data.queries, "replica": names}))
    slow = [finding.replicas for finding in diagnosis.findings if finding.cause is Cause.SLOW_REPLICA]
    assert sorted(slow) == [("replica-1",), ("replica-9",)]
    assert {finding.cause for finding in diagnosis.findings if finding.because_of} == {QUEUE, TTFT, TPOT}


# The command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    return lambda *words: CommandLine(monkeypatch, capsys)("diagnose", *map(str, words))


def test_report_has_cause_evidence_setting_and_next_value(command: Callable[..., Done]) -> None:
    done = command(path_of("overload"))
    assert done.code == 0
    assert "1. queue growth: queries without a first token grow by" in done.out
    assert "-> TTFT above its limit: p99 2,968 ms, limit 2,000 ms" in done.out
    assert "because   queue growth" in done.out
    assert re.search(r"set       llama2-70b.Server.target_qps = \d\d.* \(now 140\) in code/user_mi300x.conf", done.out)
    assert "99 % interval" in done.out
    assert "no cause found" in command(path_of("healthy_server")).out


def test_json_has_the_findings_in_order(command: Callable[..., Done]) -> None:
    found = json.loads(command(path_of("overload"), "--json").out)
    assert found["state"] == "INVALID"
    assert [one["cause"] for one in found["findings"]] == ["queue_growth", "ttft_limit"]
    first, second = found["findings"]
    assert second["because_of"] == ["queue_growth"]
    assert 60 < float(first["settings"][0]["next"]) < 100
    assert found["limits"]["TTFT"]["margin"] < 0 < found["limits"]["TPOT"]["margin"]


def test_folder_without_a_record_is_refused(command: Callable[..., Done], tmp_path: Path) -> None:
    running = write_run(tmp_path, "Server", "performance", finished=False).path
    for folder, said in ((tmp_path, "no run found"), (running, "a run has no record")):
        done = command(folder)
        assert done.code == 2
        assert said in done.err


def test_run_without_engine_settings_is_refused(command: Callable[..., Done], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(path_of("overload"), folder)
    (folder / "config.yaml").unlink()
    done = command(folder)
    assert done.code == 2
    assert "a run has no engine settings" in done.err


@pytest.mark.parametrize(("state", "cause"), [("FAILED", Cause.RUN_FAILED), ("MEASURED", Cause.NOT_JUDGED)])
def test_runs_without_records_are_explained_by_their_record(tmp_path: Path, state: str, cause: Cause) -> None:
    failed = write_run(tmp_path, "Server", "performance", state=state, reasons=["replica-0 failed: exit by signal 9"])
    diagnosis = diagnose(read_run(failed.path))
    assert tree(diagnosis) == {cause: set()}
    assert diagnosis.unrecorded
    missed = write_run(tmp_path, "Server", "accuracy", state="INVALID", reasons=["accuracy of X: ROUGE1 40 < 44"])
    [gate] = diagnose(read_run(missed.path)).findings
    assert (gate.cause, gate.summary) == (Cause.GATE_MISSED, "accuracy of X: ROUGE1 40 < 44")


def test_target_that_the_probe_refuses_is_named(tmp_path: Path) -> None:
    run = write_run(
        tmp_path,
        "Server",
        "performance",
        state="INVALID",
        reasons=["the target rate is above the throughput of this system"],
        prediction={"samples_per_second": 50.0, "low": 45.0, "high": 55.0},
        run_facts={"user_conf": "llama2-70b.Server.target_qps = 100\n"},
    )
    (run.path / "mlperf_log_detail.txt").unlink()
    [finding] = diagnose(read_run(run.path)).findings
    assert finding.cause is Cause.TARGET_TOO_HIGH
    assert str(finding.settings[0]).startswith("llama2-70b.Server.target_qps = 40 (now 100)")


def test_explanation_at_the_end_of_a_run_is_short(tmp_path: Path) -> None:
    found = explain(load_run(path_of("slow_replica_invalid")))
    lines = found.lines.splitlines()
    assert lines[0] == f"  cause: {found.cause}"
    assert lines[0].startswith("  cause: slow replica: replica-1 takes")
    assert lines[0].endswith("hence queue growth, TTFT above its limit, TPOT above its limit")
    assert lines[1].startswith("    harness-llm doctor; ")
    assert "; set llama2-70b.Server.target_qps = " in lines[1]
    assert len(lines) == 3
    assert explain(load_run(path_of("slow_replica_valid"))) == Explanation(), "the run is VALID"
    failed = write_run(tmp_path, "Server", "performance", state="FAILED", reasons=["replica-0 failed"])
    assert explain(failed) == Explanation(), "its error is printed"


def test_text_has_no_evidence_that_the_summary_states() -> None:
    diagnosis = diagnose(read_run(path_of("overload")))
    [late] = [finding for finding in diagnosis.findings if finding.cause is Cause.TTFT_LIMIT]
    assert {"p99 TTFT", "limit"} < late.evidence.keys()
    shown = [line.split() for line in render(diagnosis).splitlines() if line.startswith("     evidence  ")]
    names = {" ".join(words[1:]).partition(":")[0] for words in shown}
    assert names.isdisjoint({"p99 TTFT", "limit"})
    assert "queries above the limit" in names


def test_damaged_record_does_not_end_the_command(tmp_path: Path) -> None:
    target = tmp_path / Path(*path_of("overload").parts[-4:])
    shutil.copytree(path_of("overload"), target)
    (target / "queries.parquet").write_bytes(b"PAR1")
    run = load_run(target)
    assert run.state is State.INVALID
    assert "no diagnosis: unreadable record of a run" in explain(run).lines


NULLS = [("queries", "first_token_s"), ("replicas", "running"), ("replicas", "steps"), ("devices", "clock_mhz")]


@pytest.mark.parametrize("case", ["overload", "stall", "preemptions", "slow_replica_offline", "slow_loadgen", "killed"])
def test_unknown_values_and_missing_records_are_no_error(case: str) -> None:
    """As of engines over HTTP, and of runs that failed."""
    data = read_run(path_of(case))
    changed = [replace(data, **{name: None}) for name in ("queries", "replicas", "devices", "log")]
    for record, column in NULLS:
        columns = getattr(data, record)
        unknown = np.full(len(columns[column]), np.nan)
        changed.append(replace(data, **{record: {**columns, column: unknown}}))
    for one in changed:
        diagnosis = diagnose(one)
        assert render(diagnosis)
        json.dumps(as_json(diagnosis), allow_nan=False)


# Statistics


def test_slope_ignores_a_hump_and_noise() -> None:
    random = np.random.default_rng(1)
    times = np.arange(12.0)
    noise = random.normal(0, 1, 12)
    hump = np.where((times > 5) & (times < 8), 50.0, 0.0)
    flat, growing = slope(times, noise + hump), slope(times, noise + 3 * times)
    assert flat
    assert growing
    assert flat.low < 0 < flat.high
    assert growing.low < 3 < growing.high
    assert growing.low > 1
    assert slope(times[:5], times[:5]) is None


def test_slope_interval_contains_zero_in_most_flat_series() -> None:
    random = np.random.default_rng(2)
    times = np.arange(12.0)
    found = [slope(times, random.normal(0, 1, 12)) for _ in range(500)]
    wrong = sum(1 for one in found if one and not one.low <= 0 <= one.high)
    assert wrong / 500 < 0.03


def test_slowdown_is_against_the_median_of_the_others() -> None:
    random = np.random.default_rng(3)
    blocks = [
        {f"replica-{i}": (2.0 if i == 1 else 1.0) * float(random.lognormal(0, 0.02)) for i in range(4)}
        for _ in range(8)
    ]
    found = slowdowns(blocks)
    assert found["replica-1"].low < 2 < found["replica-1"].high
    assert all(found[name].low < 1.05 for name in ("replica-0", "replica-2", "replica-3"))
    assert slowdowns([{"replica-0": 1.0}] * 8) == {}
    assert slowdowns(blocks[:3]) == {}


def test_every_cause_has_a_title_and_no_circle() -> None:
    assert set(CAUSES) == set(Cause)

    def check(cause: Cause, path: tuple[Cause, ...]) -> None:
        assert cause not in path
        for other in CAUSES[cause].explained_by:
            check(other, (*path, cause))

    for cause in Cause:
        check(cause, ())
