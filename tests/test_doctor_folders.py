"""Write access to the folders of a command, by creating files: before any run, one error for each cause."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from full_disk import errno_on_full_disk
from machines import hide_tools
from workspaces import NAMES, make_workspace

from harness_llm.config.options import Options
from harness_llm.config.request import Request, load_request
from harness_llm.hardware import device_lock
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor import examination
from harness_llm.pipeline.doctor.folder_checks import check_folders, written_places
from harness_llm.pipeline.doctor.purpose import Purpose
from harness_llm.pipeline.submit import Pipeline
from harness_llm.write_access import Place, access_errors, existing_part, write_error

UNWRITABLE = Path("/sys/kernel")  # for root too
DEMO = ["--model", "demo", "--gpu", "cpu", *NAMES]


@pytest.fixture
def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    hide_tools(monkeypatch)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    for name in ("LAB_MODEL", "LAB_DATASET", "MLPERF_SCRATCH_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device_lock, "make_locks", lambda: tmp_path)
    for name in ("submit", "complete", "run", "prepare"):
        monkeypatch.setattr(Pipeline, name, lambda *_: pytest.fail("the submission started"))
    make_workspace(tmp_path)
    return CommandLine(monkeypatch, capsys)


def replace(folder: Path, target: Path = UNWRITABLE) -> None:
    """Put a link to a folder that no user can write in place of `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(target)


@pytest.mark.parametrize("command", ["doctor", "submit"])
@pytest.mark.parametrize("name", ["build", "submission", "build/logs", "build/cache", "build/assets"])
def test_folder_that_cannot_be_written_is_one_error_of_doctor_and_submit(
    harness: CommandLine, tmp_path: Path, command: str, name: str
) -> None:
    replace(tmp_path / name)
    done = harness(command, *DEMO)
    assert done.code == 3
    text = done.out + done.err
    assert text.count("no write access") == 1
    assert f"where: {tmp_path / name}\n" in text
    assert command == "submit" or " 1 error" in done.out


def test_folders_that_a_command_does_not_write_are_not_required(harness: CommandLine, tmp_path: Path) -> None:
    for name in ("submission", "build/tuning"):
        replace(tmp_path / name)
    assert harness("doctor", *DEMO, "--no-package").code == 0
    request = load_request(Options(model="demo", gpu="cpu", system_name="box"), Workspace(tmp_path))
    [result] = check_folders(written_places(request, Purpose.TUNE))
    assert result.where == str(tmp_path / "build/tuning")


def test_complete_models_and_data_may_be_on_a_read_only_disk(
    harness: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(tmp_path / "build/models")
    replace(tmp_path / "build/data", other := Path("/sys/fs"))
    done = harness("doctor", *DEMO)
    assert f"where: {other}/demo, {UNWRITABLE}\n" in done.out
    assert ", or set LAB_DATASET to another folder, or set LAB_MODEL to another folder\n" in done.out
    monkeypatch.setattr("harness_llm.pipeline.doctor.folder_checks.unfinished", lambda _: [])
    assert harness("doctor", *DEMO).code == 0


def test_check_that_writes_below_build_is_listed_as_not_checked(
    harness: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(request: Request) -> None:
        request.workspace.scoring.mkdir(parents=True)

    replace(tmp_path / "build")
    monkeypatch.setattr(examination, "check_scoring", write)
    done = harness("doctor", *DEMO)
    assert "not checked  Scoring " in done.out
    assert " 1 error, 1 not checked" in done.out


def test_inaccessible_folder_of_models_is_an_error_of_the_benchmark(
    harness: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Request) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/closed/models")

    monkeypatch.setattr(examination, "check_assets", refuse)
    done = harness("doctor", *DEMO)
    assert done.code == 3
    assert "demo                   OS error: [Errno 13] Permission denied: '/closed/models'" in done.out


def test_existing_part_of_a_path(tmp_path: Path) -> None:
    assert existing_part(tmp_path / "a/b") == tmp_path
    (tmp_path / "a").symlink_to(tmp_path / "none")
    assert existing_part(tmp_path / "a/b") == tmp_path / "a"
    assert write_error(tmp_path / "a")


def test_written_file_is_removed(tmp_path: Path) -> None:
    assert write_error(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_found_although_an_empty_file_can_be_created(tmp_path: Path) -> None:
    def probe() -> None:
        if error := write_error(tmp_path):
            raise error

    assert errno_on_full_disk(0, probe) == errno.EFBIG


def failing(**causes: int) -> Callable[[Path], OSError | None]:
    """A write that fails with an error number, by the name of the folder."""

    def write(folder: Path) -> OSError | None:
        number = causes.get(folder.name)
        return OSError(number, os.strerror(number)) if number else None

    return write


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EACCES, "sudo chown -R 1:2 {folder}"),
        (errno.EPERM, "sudo chattr -i {folder}"),
        (errno.EROFS, "findmnt --target {folder}"),
        (errno.ENOSPC, "df -i {folder}"),
        (errno.EDQUOT, "quota -s"),
    ],
)
def test_hint_is_that_of_the_cause(tmp_path: Path, number: int, hint: str) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    [error] = access_errors([Place(folder)], "1:2", failing(**{"a b": number}))
    assert (error.where, error.found) == (str(folder), os.strerror(number))
    assert hint.format(folder=f"'{folder}'") in error.hint


def test_folders_are_grouped_by_cause_without_those_inside_of_others(tmp_path: Path) -> None:
    for name in ("build/logs", "build/full", "submission"):
        (tmp_path / name).mkdir(parents=True)
    places = [Place(tmp_path / name) for name in ("build", "build/logs", "build/none", "build/full/x", "submission")]
    causes = dict.fromkeys(("build", "logs", "submission"), errno.EROFS) | {"full": errno.ENOSPC}
    errors = access_errors(places, try_folder=failing(**causes))
    assert [error.where for error in errors] == [f"{tmp_path}/build, {tmp_path}/submission", f"{tmp_path}/build/full/x"]


def test_missing_folder_is_made_and_its_existing_parent_keeps_its_owner(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    places = [Place(tmp_path / "scratch/models", "LAB_MODEL"), Place(tmp_path / "scratch/models/x", "LAB_MODEL")]
    [error] = access_errors(places, try_folder=failing(scratch=errno.EACCES))
    models = tmp_path / "scratch/models"
    assert error.where == str(models)
    assert error.hint == f'sudo mkdir -p {models} && sudo chown "$USER" {models}, or set LAB_MODEL to another folder'
