"""The scoring service on a real socket; its container engine is a script that runs only programs of these tests."""

import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_mbxp import CHECK, RIGHT, RUN, WRONG, install

from harness_llm.containers import scoring_server as scoring
from harness_llm.containers.arguments import Container, Mount
from harness_llm.containers.scoring_server import grade_command, offer
from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError, RunFailed
from harness_llm.evaluate import scoring_service as service
from harness_llm.evaluate.mbxp import container as mbxp
from harness_llm.evaluate.mbxp.container import require_mbxp

pytestmark = pytest.mark.processes

PROGRAMS = '{"kind": "run-mbxp", "programs": %s}'
PROGRAM = '{"language": "python", "code": ""}'


def container(folder: Path) -> Container:
    return Container(str(folder / "docker"), "image:cpu", "stage-1", f"{os.getuid()}:{os.getgid()}")


def address(served: Container) -> Path:
    """The socket outside of the container."""
    mount = served.mounts[-1]
    return mount.source / Path(served.environment[service.VARIABLE]).relative_to(mount.target)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The service's container engine; the asking side finds none."""
    monkeypatch.setattr("harness_llm.evaluate.mbxp.container.ENGINES", ("no-such-engine",))
    return install(tmp_path / "docker")


@pytest.fixture
def served(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    with offer(container(tmp_path)) as served:
        monkeypatch.setenv(service.VARIABLE, str(address(served)))
        yield served


def test_programs_are_run_by_the_service(served: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "BATCH", 1)
    assert mbxp.score([CHECK] * 3, [RIGHT, WRONG, RIGHT], workers=3) == [100.0, 0.0, 100.0]


def test_socket_is_private_and_removed(engine: Path, tmp_path: Path) -> None:
    with offer(container(tmp_path)) as served:
        file = address(served)
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert not served.mounts[-1].writable
    assert not file.parent.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_socket_is_owned_by_the_user_of_the_container(engine: Path, tmp_path: Path) -> None:
    with offer(replace(container(tmp_path), user="1234:1235")) as served:
        owners = [(file.stat().st_uid, file.stat().st_gid) for file in (address(served), address(served).parent)]
        assert owners == [(1234, 1235)] * 2


def test_socket_may_have_a_long_path(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / ("x" * 100) / ("y" * 100)
    folder.mkdir(parents=True)
    monkeypatch.setattr(scoring, "memory_folder", lambda: str(folder))
    with offer(container(tmp_path)) as served:
        descriptor = os.open(address(served).parent, os.O_PATH)
        monkeypatch.setenv(service.VARIABLE, f"/proc/self/fd/{descriptor}/{address(served).name}")
        assert mbxp.score([CHECK], [RIGHT], workers=1) == [100.0]
        os.close(descriptor)


def test_several_services_run_at_once(engine: Path, tmp_path: Path) -> None:
    with offer(container(tmp_path)) as one, offer(container(tmp_path)) as other:
        assert address(one) != address(other)


def ask_raw(line: bytes) -> HarnessError:
    """The error that the service answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[service.VARIABLE])
        connection.sendall(line + b"\n")
        answer = json.loads(connection.makefile("rb").readline())
    return service.rebuild(answer["error"])


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "{}",
        '{"kind": "run", "command": ["sh"]}',
        PROGRAMS % f'[{PROGRAM[:-1]}, "image": "other"}}]',
        PROGRAMS % '[{"language": "bash", "code": ""}]',
        PROGRAMS % f"[{', '.join([PROGRAM] * 101)}]",
        '{"kind": "require-mbxp", "image": "other"}',
        '{"kind": "grade", "method": "deepseek-r1", "folder": "/", "image": "other"}',
        '{"kind": "grade", "method": "sh", "folder": "/"}',
    ],
)
def test_other_requests_are_refused(served: Container, engine: Path, line: str) -> None:
    assert isinstance(ask_raw(line.encode()), ConfigError)
    assert not Path(f"{engine}.log").exists()


def test_large_request_is_refused(served: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "REQUEST_BYTES", 100)
    assert "too large" in str(ask_raw(b" " * 101))


def test_missing_image_is_built_once(served: Container, engine: Path) -> None:
    install(engine, image='test -e "$0.built" || exit 1')
    with engine.open("a") as file:
        file.write(f'test "$1" != build || touch {engine}.built\n')
    with pytest.raises(EnvironmentMissing, match="missing languages"):  # this machine lacks some of them
        require_mbxp()
    assert Path(f"{engine}.log").read_text().split().count("build") == 1


def test_failed_build_is_reported(served: Container, engine: Path) -> None:
    install(engine, image="exit 1")
    with engine.open("a") as file:
        file.write('test "$1" != build || { echo pull access denied; exit 1; }\n')
    with pytest.raises(EnvironmentMissing, match="base image not available"):
        require_mbxp()


def test_failing_container_is_reported(served: Container, engine: Path) -> None:
    install(engine, run=f"{RUN.removeprefix('exec ')}; kill -9 $$")
    with pytest.raises(RunFailed, match="ended early"):
        mbxp.score([CHECK], [RIGHT], 1)


def test_service_that_ended_is_reported(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with offer(container(tmp_path)) as served:
        monkeypatch.setenv(service.VARIABLE, str(address(served)))
    with pytest.raises(EnvironmentMissing, match="no connection to the scoring service"):
        require_mbxp()


def test_end_of_the_stage_ends_running_programs(engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(engine, run=f"touch {tmp_path}/started; sleep 600")
    failures: list[HarnessError] = []

    def score() -> None:
        try:
            mbxp.score([CHECK], [RIGHT], 1)
        except HarnessError as error:
            failures.append(error)

    with offer(container(tmp_path)) as served:
        monkeypatch.setenv(service.VARIABLE, str(address(served)))
        thread = threading.Thread(target=score)
        thread.start()
        while not (tmp_path / "started").exists():
            thread.join(0.05)
            assert thread.is_alive()
    thread.join(60)
    assert [error.what for error in failures] == ["scoring was interrupted"]


def test_evaluator_runs_without_network_and_token_on_read_only_mounts() -> None:
    mounts = (Mount(Path("/a"), "/model"),)
    asking = Container("docker", "image:cpu", "stage-1", "7:8", mounts, groups=(9,), environment={"X": "1"})
    command = grade_command(asking, "stage-1-scoring", ["-c", "program", "/folder"])
    options = {command[i]: command[i + 1] for i in range(len(command) - 1) if command[i].startswith("--")}
    assert options["--network"] == "none"
    assert options["--user"] == "7:8"
    assert options["--group-add"] == "9"
    assert options["--cap-drop"] == "ALL"
    assert options["--mount"] == "type=bind,source=/a,target=/model,readonly"
    assert int(options["--memory"]) == int(options["--memory-swap"]) > 1 << 28
    assert options["--pids-limit"] == "8192"
    assert "X=1" not in command
    assert command[-7:] == ["image:cpu", "sh", "-c", scoring._PYTHON, "sh", "-c", "program", "/folder"][-7:]
