"""`harness-llm report`, without a browser."""

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine, Done
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_runs import write_recorded_run
from runs import write_all, write_run
from tuning_sessions import SESSION, trial

from harness_llm.analysis.diagnosis.diagnosis import diagnose
from harness_llm.analysis.diagnosis.run_data import read_run
from harness_llm.analysis.report.downsampling import binned, edges, quantile_curve, rate
from harness_llm.analysis.report.recorded_run import read_recorded_run
from harness_llm.runs.record import State
from harness_llm.runs.trial_store import open_session

HOSTILE = "</script><b>&\"'{{ 1 }}"
MOST_BYTES = 8_000_000


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    return lambda *words: CommandLine(monkeypatch, capsys)("report", *map(str, words))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "build" / "logs"


def page(done: Done) -> str:
    assert done.code == 0, done.err
    return Path(done.out.strip()).read_text()


def words(done: Done) -> str:
    """The visible text of the report."""
    body = re.sub(r"<(script|style).*?</\1>", " ", page(done), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_newest_submission_is_reported_by_default(report: Callable[..., Done], logs: Path, tmp_path: Path) -> None:
    write_recorded_run(logs)
    write_recorded_run(logs, "Offline", hour=1)
    done = report()
    assert Path(done.out.strip()) == tmp_path / "build" / "reports" / "20260701T130000Z_cpu-box.html"
    assert "demo, Offline" in words(done)
    assert "demo, Server" not in words(done)


def test_report_of_a_run_has_the_accuracy_and_compliance_of_its_scenario(
    report: Callable[..., Done], logs: Path
) -> None:
    run = write_recorded_run(logs)
    write_run(logs, "Server", "accuracy", metrics={"ROUGE1": 41.5})
    write_run(logs, "Server", "TEST06")
    text = words(report(run.path))
    assert "ROUGE1 41.5" in text
    assert "TEST06 ✓ VALID" in text
    assert "TEST06 verification complete" in text
    assert "harness-llm submit --scenario Server & # performance" in text


def test_reasons_of_an_invalid_run_are_steps_to_take(report: Callable[..., Done], logs: Path) -> None:
    run = write_recorded_run(logs, state=State.INVALID, reasons=["p99 TPOT above its limit"])
    text = words(report(run.path))
    assert "performance is INVALID: p99 TPOT above its limit." in text


def test_findings_of_the_diagnosis_are_at_the_top_of_a_run(report: Callable[..., Done], logs: Path) -> None:
    run = write_recorded_run(logs, state=State.FAILED, reasons=["replica-0 ended: exit by signal 9"])
    text = words(report(run.path))
    finding, *_ = diagnose(read_run(run.path)).findings
    assert f"{finding.title}: {finding.summary}" in text
    assert finding.action in text
    assert text.index("Findings of the diagnosis, performance") < text.index("Figures of the performance runs")


def test_damaged_settings_leave_a_report_without_diagnosis(report: Callable[..., Done], logs: Path) -> None:
    run = write_recorded_run(logs)
    (run.path / "config.yaml").write_text("a: [")
    assert "No diagnosis: invalid YAML" in words(report(run.path))


def test_differences_between_runs_side_by_side(report: Callable[..., Done], logs: Path) -> None:
    write_recorded_run(logs, fingerprint={"llm_config": {"max_num_seqs": 128}})
    write_recorded_run(logs, hour=1, fingerprint={"llm_config": {"max_num_seqs": 256}})
    text = words(report(logs))
    assert "llm_config.max_num_seqs 128 256" in text
    assert "Queries in flight · A" in text
    assert "Queries in flight · B" in text


def test_missing_records_are_named(report: Callable[..., Done], logs: Path) -> None:
    run = write_recorded_run(logs)
    (run.path / "replicas.parquet").unlink()
    (run.path / "devices.parquet").write_bytes(b"damaged")
    text = words(report(run.path))
    assert "replicas.parquet is missing" in text
    assert "unreadable record of a run" in text
    assert "KV cache use: no values were recorded" in text
    assert "counted when the answer is complete" in text  # throughput from queries.parquet


@pytest.mark.parametrize("last", [-0.3, 0.0, 0.4])
def test_run_that_failed_in_its_first_second_is_reported(report: Callable[..., Done], logs: Path, last: float) -> None:
    """Its records end at `last` seconds after LoadGen's start, without an answer."""
    write_recorded_run(logs)
    failed = write_recorded_run(logs, hour=1, state=State.FAILED, reasons=["a replica refused a query"], metrics={})
    for file in ("replicas.parquet", "devices.parquet"):
        table = pq.read_table(failed.path / file)
        times = pc.add(table["time_s"], last - pc.max(table["time_s"]).as_py())
        pq.write_table(table.set_column(table.schema.get_field_index("time_s"), "time_s", times), failed.path / file)
    (failed.path / "queries.parquet").unlink()
    assert read_recorded_run(failed.path).end == pytest.approx(max(last, 0.0))
    text = words(report(logs))
    assert "a replica refused a query" in text
    assert "Queries in flight · A" in text


@pytest.mark.parametrize("finished", [True, False])
def test_runs_without_records_are_reported(report: Callable[..., Done], logs: Path, finished: bool) -> None:
    write_all(logs, tests=("performance", "accuracy"), finished=finished)
    text = words(report(logs))
    assert "queries.parquet is missing" in text
    assert ("VALID" if finished else "INTERRUPTED") in text


def test_texts_are_escaped(report: Callable[..., Done], logs: Path) -> None:
    run = write_recorded_run(logs, command=HOSTILE, reasons=[HOSTILE], state=State.FAILED, engine=HOSTILE)
    html = page(report(run.path))
    assert HOSTILE not in html
    assert "<b>" not in re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)


def test_data_cannot_end_their_script_element(report: Callable[..., Done], tmp_path: Path) -> None:
    store = open_session(tmp_path, SESSION)
    store.append(trial(0, kind="probe", target_qps=5.0, reason=HOSTILE, settings={HOSTILE: HOSTILE}))
    html = page(report(store.folder))
    data = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html, re.DOTALL)
    assert data
    assert json.loads(data[1])
    assert HOSTILE not in html


def test_report_of_a_tuning_session(report: Callable[..., Done], tmp_path: Path) -> None:
    store = open_session(tmp_path, SESSION)
    facts = {"kind": "probe", "ttft_margin": 0.2, "tpot_margin": 0.1}
    store.append(trial(0, **facts, target_qps=50.0))
    store.append(trial(1, **facts | {"ttft_margin": -0.5}, target_qps=100.0, state="INVALID", reason="p99 TTFT"))
    store.append(trial(2, settings={"llm_config.max_num_seqs": 64}, throughput=90.0))
    store.append(trial(3, **facts | {"kind": "confirmation"}, target_qps=60.0))
    text = words(report(store.folder))
    assert "The session has not ended" in text
    assert "highest VALID target 60; lowest INVALID target above it 100" in text
    store.append(trial(4, **facts, target_qps=90.0))
    store.append(trial(5, **facts | {"kind": "confirmation"}, target_qps=80.0, state="INVALID"))
    assert "highest VALID target 60; lowest INVALID target above it 80" in words(report(store.folder))
    store.finish({"target_key": "Server.target_qps", "target": 60.0, "text": "Server.target_qps = 60"})
    text = words(report(store.folder))
    assert "60 Server.target_qps" in text
    assert "found: 60" in page(report(store.folder))
    assert "Confirmation 3 at 60 queries/s is VALID" in text
    assert "llm_config.max_num_seqs" in text


@pytest.mark.parametrize("place", ["missing", "empty"])
def test_folder_without_anything_to_report_is_refused(report: Callable[..., Done], tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    done = report(tmp_path / place)
    assert done.code == 2
    assert str(tmp_path / place) in done.err


def test_hour_long_runs_of_eight_replicas_stay_below_8_mb(report: Callable[..., Done], logs: Path) -> None:
    for hour in range(3):
        write_recorded_run(logs, hour=hour, seconds=3600, queries=100_000, replicas=8, devices=8)
    assert len(page(report(logs)).encode()) < MOST_BYTES


@settings(deadline=None)
@given(st.lists(st.floats(0, 1000), min_size=1, max_size=300), st.integers(1, 50))
def test_intervals_keep_lowest_and_highest_values(values: list[float], most: int) -> None:
    time = np.linspace(0, 100, len(values))
    found = binned(time, np.array(values), edges(101, most))
    assert np.nanmin(found.low) == min(values)
    assert np.nanmax(found.high) == max(values)
    assert np.all((found.low <= found.mean + 1e-9) | np.isnan(found.mean))
    assert np.all((found.mean <= found.high + 1e-9) | np.isnan(found.mean))


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=100))
def test_rate_keeps_the_sum(amounts: list[int]) -> None:
    time = np.arange(len(amounts)) + 0.5
    bounds = np.arange(0.0, len(amounts) + 2)
    assert rate(time, np.array(amounts, dtype=float), bounds).sum() == pytest.approx(sum(amounts))


def test_quantiles_follow_loadgens_rule() -> None:
    values = np.random.default_rng(0).permutation(np.arange(1000.0))
    positions, found = quantile_curve(values, most=2001)
    assert found[np.searchsorted(positions, 2.0 + 1e-9)] == 990  # rank floor(0.99 * 1000), from 0
    assert found[-1] == 999
