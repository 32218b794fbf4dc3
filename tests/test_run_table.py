"""`harness-llm runs` and `harness-llm status --json`."""

import csv
import io
import json
import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, Done
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from runs import SUBJECT, write_limits, write_run
from workspaces import make_workspace

from harness_llm.analysis.run_row import RunRow, run_row
from harness_llm.analysis.run_table import show
from harness_llm.paths import Workspace
from harness_llm.runs.record import LOCK

EMPTY: dict[str, Any] = {field.name: None if field.type == float | None else "" for field in fields(RunRow)}
ROW = RunRow(**EMPTY | {"started": "2026-07-01T12:00:00Z"})
BRACKETS = "LoadGen error: [red]x[/red] " * 5


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """A workspace with four runs."""
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    logs = tmp_path / "build" / "logs"
    server: dict[str, Any] = {"run_facts": {"user_conf": "demo.Server.target_qps = 12.5\n"}}
    metrics = {"tokens_per_second": 900.5, "p99_ttft_ms": 2500.0, "p99_tpot_ms": 50.0}
    facts = {"fingerprint": SUBJECT | {"loadgen": "6.0.17", "measuring_source": "abcdef0123"}}
    late = write_run(
        logs, "Server", "performance", state="INVALID", reasons=[BRACKETS], metrics=metrics, **server, **facts
    )
    write_limits(late, ttft_ms=2000, tpot_ms=200)
    write_run(logs, "Offline", "performance", hour=1, metrics={"tokens_per_second": 1234.5})
    write_run(logs, "Offline", "accuracy", hour=2, metrics={"ROUGE1": 40.125, "GEN_LEN": 9.0})
    write_run(logs, "Server", "performance", hour=3, finished=False, system="other-box")
    return lambda *words: CommandLine(monkeypatch, capsys)("runs", *words)


def found(done: Done) -> list[dict[str, Any]]:
    assert done.code == 0, done.err
    rows: list[dict[str, Any]] = json.loads(done.out)
    return rows


def test_unfinished_run_below_a_renamed_folder_has_the_time_of_its_lock(
    runs: Callable[..., Done], tmp_path: Path
) -> None:
    logs = tmp_path / "build" / "logs"
    run = write_run(logs, "Offline", "accuracy", hour=4, finished=False).path
    os.utime(run / LOCK, (1_790_000_000, 1_790_000_000))
    (logs / run.parts[-5]).rename(logs / "from_node_b")
    rows = found(runs("--json"))
    assert [row["started"] for row in rows][-2:] == ["2026-07-01T15:00:00Z", "2026-09-21T14:13:20Z"]


def test_rows_have_figures_limits_versions_and_settings(runs: Callable[..., Done]) -> None:
    server, offline, accuracy, unfinished = found(runs("--json"))
    assert server | {"fingerprint": "", "path": ""} == {
        "started": "2026-07-01T12:00:00Z",
        "system": "cpu-box",
        "benchmark": "demo",
        "scenario": "Server",
        "test": "performance",
        "state": "INVALID",
        "tokens_per_second": 900.5,
        "samples_per_second": None,
        "p99_ttft_ms": 2500.0,
        "ttft_limit_ms": 2000.0,
        "p99_tpot_ms": 50.0,
        "tpot_limit_ms": 200.0,
        "score": None,
        "score_metric": "",
        "target": 12.5,
        "fingerprint": "",
        "profile": "smoke",
        "round": "v6.1",
        "division": "open",
        "engine": "vllm 0.32.0",
        "loadgen": "6.0.17",
        "harness": "abcdef01",
        "reason": BRACKETS,
        "path": "",
    }
    assert Path(server["path"], "run.json").is_file()
    assert offline["fingerprint"] == accuracy["fingerprint"] != server["fingerprint"]
    assert (offline["ttft_limit_ms"], offline["score"]) == (None, None)
    assert (accuracy["score_metric"], accuracy["score"]) == ("ROUGE1", 40.125)
    assert (unfinished["state"], unfinished["system"]) == ("INTERRUPTED", "other-box")
    assert unfinished["started"] == "2026-07-01T15:00:00Z"


@pytest.mark.parametrize(
    ("words", "hours"),
    [
        (["--where", "state=invalid"], [12]),
        (["--where", "state!=VALID"], [12, 15]),
        (["--where", "system=cpu-*", "--where", "scenario=Offline"], [13, 14]),
        (["--where", "tokens_per_second>=900.5"], [12, 13]),
        (["--where", "tokens_per_second < 1000"], [12]),
        (["--where", "started>2026-07-01T13"], [13, 14, 15]),
        (["--where", "target=12.50"], [12]),
        (["--last", "2"], [14, 15]),
        (["--last", "1", "--where", "state=VALID"], [14]),
        (["--sort", "-started"], [15, 14, 13, 12]),
        (["--sort", "-tokens_per_second"], [13, 12, 14, 15]),
        (["--where", "state=DEGRADED"], []),
    ],
)
def test_runs_are_filtered_and_sorted(runs: Callable[..., Done], words: list[str], hours: list[int]) -> None:
    assert [int(row["started"][11:13]) for row in found(runs("--json", *words))] == hours


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--where", "state"], "invalid --where"),
        (["--where", "status=VALID"], "unknown field status"),
        (["--where", "target>much"], "expected: target: a number"),
        (["--sort", "-speed"], "unknown field speed"),
    ],
)
def test_wrong_conditions_and_orders_are_refused(runs: Callable[..., Done], words: list[str], said: str) -> None:
    done = runs(*words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_csv_equals_json(runs: Callable[..., Done]) -> None:
    rows = list(csv.DictReader(io.StringIO(runs("--csv").out)))
    assert rows == [
        {name: "" if value is None else str(value) for name, value in row.items()} for row in found(runs("--json"))
    ]


def test_output_that_is_no_terminal_has_every_column_in_full(runs: Callable[..., Done]) -> None:
    out = runs().out
    assert BRACKETS.strip() in out
    for text in (
        "profile smoke; round v6.1",
        "/cpu-box/demo/Server/performance",
        "2,500 / 2,000",
        "ROUGE1 40.1250",
        "12.5",
        "6.0.17",
    ):
        assert text in " ".join(out.split()), text


def test_no_runs_are_reported_on_stderr(runs: Callable[..., Done]) -> None:
    done = runs("--where", "system=nowhere")
    assert (done.code, done.out) == (0, "")
    assert "no runs that meet the conditions" in done.err
    assert runs("--json", "--where", "system=nowhere").out == "[]\n"


def printed(rows: list[RunRow], width: int) -> list[str]:
    text = io.StringIO()
    show(rows, Console(file=text, width=width, force_terminal=True, color_system=None))
    return text.getvalue().splitlines()


def test_a_terminal_shows_the_columns_that_fit(tmp_path: Path) -> None:
    many = "LoadGen result INVALID: TTFT constraint not met: reduce target QPS"
    rows = [
        run_row(write_run(tmp_path, "Interactive", "performance", hour=hour, state="INVALID", reasons=[many]))
        for hour in range(2)
    ]
    narrow, wide = printed(rows, 80), printed(rows, 400)
    assert max(map(len, narrow)) <= 80
    heading = next(number for number, line in enumerate(narrow) if line.startswith("run "))
    assert narrow[heading].split() == ["run", "state", "tokens/s"]
    for line, row in zip(narrow[heading + 2 :], rows, strict=True):
        assert line.split() == [row.name, "INVALID", "1,234"]
    assert " reason" in wide[1]
    assert wide[-1].rstrip().endswith("  TTFT constraint not met: reduce target QPS")
    assert "profile smoke; round v6.1" in wide[0]


@given(
    runs=st.lists(
        st.tuples(
            st.sampled_from(["box", "8xMI300X_2xEPYC_9554"]),
            st.sampled_from(["demo", "llama2-70b", "mixtral-8x7b"]),
            st.sampled_from(["Offline", "Interactive"]),
            st.sampled_from(["performance", "TEST06"]),
            st.sampled_from(["VALID", "INTERRUPTED"]),
        ),
        unique=True,
        min_size=1,
    ),
    width=st.integers(40, 160),
)
@settings(deadline=None)
def test_each_run_has_its_name_and_state_in_every_width(runs: list[tuple[str, str, str, str, str]], width: int) -> None:
    rows = [replace(ROW, path=f"/w/build/logs/20260701T120000Z/{'/'.join(run[:4])}", state=run[4]) for run in runs]
    lines = printed(rows, width)
    assert max(map(len, lines)) <= width
    [start] = [number for number, line in enumerate(lines) if line.startswith("──")]
    folded = "".join(line.split()[0] for line in lines[start + 1 :])
    assert folded == "".join(row.name for row in rows)
    assert "".join(lines).count(" VALID") == sum(row.state == "VALID" for row in rows)


@pytest.mark.parametrize("command", [["diagnose", ""], ["bundle", ""], ["report", ""], ["compare", "", ""]])
def test_name_of_a_run_is_accepted_by_other_commands(
    runs: Callable[..., Done],
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("harness_llm.cli.analysis_commands.ask_doctor", lambda _: "")
    [line] = [line for line in runs().out.splitlines() if "Offline/performance" in line]
    words = [word or line.split()[0] for word in command]
    done = CommandLine(monkeypatch, capsys)(*words)
    assert done.code == 0, done.err


def test_folder_of_the_working_directory_precedes_a_run_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = Path("20260701T120000Z/cpu-box")
    below = tmp_path / "build/logs" / name
    below.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert Workspace(tmp_path).run_folder(name) == below
    name.mkdir(parents=True)
    assert Workspace(tmp_path).run_folder(name) == name


def test_status_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    make_workspace(tmp_path)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    words = ["status", "--system-name", "box", "--model", "demo", "--gpu", "cpu", "--scenarios", "Offline", "--json"]
    done = CommandLine(monkeypatch, capsys)(*words)
    assert done.code == 0, done.err
    (document,) = json.loads(done.out)
    assert (document["benchmark"], document["system"], document["profile"]) == ("demo", "box", "smoke")
    assert "train" in document["unprepared"]
    assert document["runs"][0] == {
        "scenario": "Offline",
        "test": "performance",
        "state": "MISSING",
        "reason": "no run",
        "path": None,
    }


def test_output_to_a_file_has_the_whole_name_of_each_run_without_reasons_too(runs: Callable[..., Done]) -> None:
    done = runs("--where", "state=VALID")
    for row in found(runs("--json", "--where", "state=VALID")):
        assert "/".join(Path(row["path"]).parts[-5:]) in done.out
