import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from runs import BENCHMARK, START, SUBJECT, SYSTEM, write_run

from harness_llm.errors import RunFailed
from harness_llm.paths import log_folder
from harness_llm.pipeline.judgement import require_measuring_source
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.program_source import MEASURING
from harness_llm.runs.record import RunKey, RunRecord, State, digest, find_runs, load_run, lock_run, open_run

HOLD = """
import sys, time
from pathlib import Path
from harness_llm.runs.record import open_run
with open_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_run_folders_are_named_by_time_system_benchmark_scenario_and_test(tmp_path: Path) -> None:
    assert log_folder(tmp_path, START, "box", "demo") == tmp_path / "20260701T120000Z" / "box" / "demo"


def test_run_directory_is_locked(tmp_path: Path) -> None:
    with open_run(tmp_path / "a" / "run"):
        (tmp_path / "a" / "run" / "log").write_text("first")
    with pytest.raises(FileExistsError), open_run(tmp_path / "a" / "run"):
        pass
    assert (tmp_path / "a" / "run" / "log").read_text() == "first"


def test_run_without_a_record_is_running_while_its_lock_is_held(tmp_path: Path) -> None:
    path = log_folder(tmp_path, START, SYSTEM, BENCHMARK) / "Offline" / "performance"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout
        assert holder.stdout.readline() == b"held\n"
        assert load_run(path).state is State.RUNNING
        holder.kill()
    found = load_run(path)
    assert found.state is State.INTERRUPTED
    assert found.record is None
    assert found.reasons == []
    assert (found.system, found.run_key) == (SYSTEM, RunKey(BENCHMARK, "Offline", "performance"))


def test_run_that_is_judged_is_running(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "accuracy", state=State.MEASURED)
    with lock_run(run.path):
        assert (load_run(run.path).state, load_run(run.path).record) == (State.RUNNING, None)
    assert load_run(run.path).state is State.MEASURED


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"state": "GOOD"}'])
def test_unreadable_record_is_ignored(tmp_path: Path, text: str) -> None:
    run = write_run(tmp_path, "Offline", "performance")
    (run.path / "run.json").write_text(text)
    found = load_run(run.path)
    assert found.state is State.FAILED
    assert found.record is None
    assert "run.json is damaged" in found.reasons[0]


def test_a_record_of_an_earlier_version_is_named_as_such(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "performance")
    document = json.loads((run.path / "run.json").read_text())
    document["subject"] = document.pop("fingerprint")
    (run.path / "run.json").write_text(json.dumps(document))
    found = load_run(run.path)
    assert (found.state, found.record) == (State.FAILED, None)
    assert found.reasons == ["run.json was written by an earlier version of harness-llm (missing fields: fingerprint)"]


def test_records_of_earlier_and_later_versions_are_read(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "performance")
    document = json.loads((run.path / "run.json").read_text())
    optional = {name for name, field in RunRecord.model_fields.items() if not field.is_required()}
    earlier = {name: value for name, value in document.items() if name not in optional}
    (run.path / "run.json").write_text(json.dumps(earlier | {"field_of_a_later_version": 1}))
    found = load_run(run.path)
    assert (found.state, found.fault) == (State.VALID, "")
    assert found.record
    assert (found.record.version, found.record.fingerprint) == (0, document["fingerprint"])


def test_run_that_has_not_ended_has_the_record_of_its_start(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "performance", finished=False, profile="fast")
    assert (run.state, run.record) == (State.INTERRUPTED, None)
    assert run.begun
    assert run.begun.profile == "fast"
    with lock_run(run.path):
        running = load_run(run.path)
    assert (running.state, running.record, running.begun) == (State.RUNNING, None, run.begun)


def test_unfinished_record_is_ignored(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "performance", finished=False)
    (run.path / "run.json.tmp").write_text("{")
    assert load_run(run.path).state is State.INTERRUPTED


@pytest.mark.parametrize("state", [State.VALID, State.INVALID, State.DEGRADED, State.FAILED])
def test_record_is_read_back(tmp_path: Path, state: State) -> None:
    run = write_run(tmp_path, "Server", "TEST06", state=state, reasons=["so it is"], hour=1)
    assert run.state is state
    assert run.reasons == ["so it is"]
    assert run.record
    assert run.record.run_key == run.run_key == RunKey(BENCHMARK, "Server", "TEST06")
    assert run.record.started == START + dt.timedelta(hours=1)
    assert str(run.run_key) == f"{BENCHMARK}/Server/TEST06"
    assert not (run.path / "run.json.tmp").exists()


def test_record_is_written_last(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "performance")
    times = {file.name: file.stat().st_mtime_ns for file in run.path.iterdir()}
    assert max(times, key=times.__getitem__) == "run.json"


def test_record_contains_the_digests_of_the_logs(tmp_path: Path) -> None:
    run = write_run(tmp_path, "Offline", "performance", run_facts={"samples": 9})
    document = json.loads((run.path / "run.json").read_text())
    assert document["fingerprint_digest"] == digest(SUBJECT) == run.record.fingerprint_digest
    assert document["run_facts_digest"] == digest({"samples": 9})


def test_digest_does_not_depend_on_key_order() -> None:
    assert digest({"a": 1, "b": {"c": 2, "d": 3}}) == digest({"b": {"d": 3, "c": 2}, "a": 1})
    assert len({digest(facts) for facts in ({}, {"a": 1}, {"a": 2}, {"a": "1"}, {"b": 1}, {"a": [1]})}) == 6


def test_record_refuses_unknown_keys_and_is_immutable(tmp_path: Path) -> None:
    record = write_run(tmp_path, "Offline", "performance").record
    assert record
    with pytest.raises(ValidationError, match="mood"):
        RunRecord.model_validate(record.model_dump() | {"mood": "good"})
    with pytest.raises(ValidationError, match="frozen"):
        record.state = State.VALID


def test_runs_of_a_system_are_found_oldest_first(tmp_path: Path) -> None:
    late = write_run(tmp_path, "Offline", "performance", hour=5)
    early = write_run(tmp_path, "Server", "accuracy", hour=1)
    begun = write_run(tmp_path, "Server", "TEST06", hour=2, finished=False)
    write_run(tmp_path, "Offline", "performance", system="another")
    assert [run.path for run in find_runs(tmp_path, SYSTEM)] == [early.path, begun.path, late.path]
    assert find_runs(tmp_path / "nothing", SYSTEM) == []


# Source that changes during a run


def test_run_whose_source_changed_is_failed() -> None:
    require_measuring_source({SOURCE: MEASURING.digest()})
    with pytest.raises(RunFailed, match="changed after this command had started"):
        require_measuring_source({SOURCE: "of yesterday"})
