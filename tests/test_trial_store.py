"""Trial store: interrupted writes, and the continuation of sessions."""

import datetime as dt
import errno
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import tuning_sessions
from full_disk import errno_on_full_disk
from tuning_sessions import SESSION, trial
from waiting import PATIENCE_S, wait_until

from harness_llm.errors import ConfigError
from harness_llm.runs.trial_store import TRIALS, TrialStore, open_session, read_session, read_trials, session_folders

LATER = msgspec.structs.replace(SESSION, started=SESSION.started + dt.timedelta(hours=1))


def test_trials_are_read_as_they_were_appended(tmp_path: Path) -> None:
    store = open_session(tmp_path, SESSION)
    store.append(trial(0, settings={"llm_config.max_num_seqs": 64}, ttft_margin=0.25))
    store.append(trial(1, state="FAILED", throughput=None, reason="CUDA out of memory"))
    assert read_trials(store.folder) == store.trials == TrialStore(store.folder).trials
    assert store.trials[0].settings == {"llm_config.max_num_seqs": 64}


def test_trial_with_a_wrong_number_is_refused(tmp_path: Path) -> None:
    store = open_session(tmp_path, SESSION)
    with pytest.raises(ValueError, match="trial 1"):
        store.append(trial(1))


@pytest.mark.parametrize("cut", [1, 40])
def test_incomplete_line_is_ignored_and_removed_before_the_next_trial(tmp_path: Path, cut: int) -> None:
    store = open_session(tmp_path, SESSION)
    for number in range(2):
        store.append(trial(number))
    file = store.folder / TRIALS
    file.write_bytes(file.read_bytes()[:-cut])
    assert read_trials(store.folder) == [trial(0)]
    continued = TrialStore(store.folder)
    continued.append(trial(1, reason="again"))
    assert [t.reason for t in read_trials(store.folder)] == ["", "again"]


def test_full_disk_is_an_error_and_the_session_continues(tmp_path: Path) -> None:
    store = open_session(tmp_path, SESSION)
    store.append(trial(0))

    def append() -> None:
        try:
            store.append(trial(1))
        finally:
            assert store.trials == [trial(0)]

    assert errno_on_full_disk((store.folder / TRIALS).stat().st_size + 10, append) == errno.EFBIG
    assert read_trials(store.folder) == [trial(0)]
    continued = TrialStore(store.folder)
    continued.append(trial(1))
    assert read_trials(store.folder) == [trial(0), trial(1)]


def test_damaged_line_is_an_error_with_its_place(tmp_path: Path) -> None:
    store = open_session(tmp_path, SESSION)
    store.append(trial(0))
    file = store.folder / TRIALS
    file.write_bytes(b"{}\n" + file.read_bytes())
    with pytest.raises(ConfigError) as error:
        read_trials(store.folder)
    assert error.value.where == f"{file}:1"


@pytest.mark.processes(seconds=2)
def test_trials_survive_kill_9(tmp_path: Path) -> None:
    folder = open_session(tmp_path, SESSION).folder
    for _ in range(3):
        enough = len(read_trials(folder)) + 20
        with subprocess.Popen([sys.executable, tuning_sessions.__file__, "append", str(folder)]) as process:
            try:
                wait_until(lambda enough=enough: len(read_trials(folder)) >= enough, PATIENCE_S, "trials")  # type: ignore[misc]
            finally:
                process.kill()
        assert process.returncode == -signal.SIGKILL
    assert [t.number for t in read_trials(folder)] == list(range(TrialStore(folder).next_number))


def test_session_continues_until_it_has_ended(tmp_path: Path) -> None:
    first = open_session(tmp_path, SESSION)
    first.append(trial(0))
    assert open_session(tmp_path, LATER).trials == [trial(0)]
    first.finish({"llm_config.max_num_seqs": 64})
    assert read_session(first.folder).found == {"llm_config.max_num_seqs": 64}
    assert open_session(tmp_path, LATER).trials == []
    assert session_folders(tmp_path) == [tmp_path / SESSION.name, tmp_path / LATER.name]


@pytest.mark.parametrize("other", [{"fingerprint": "b2"}, {"scenario": "Server"}, {"what": "target"}])
def test_session_of_other_settings_is_not_continued(tmp_path: Path, other: dict[str, str]) -> None:
    open_session(tmp_path, SESSION).append(trial(0))
    assert open_session(tmp_path, msgspec.structs.replace(LATER, **other)).trials == []
