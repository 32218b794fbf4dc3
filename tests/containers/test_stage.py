"""A stage in a container, with commands in place of harness-llm."""

import gc
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dockerd import PATH, Dockerd

from harness_llm.containers.container_stage import run_stage
from harness_llm.containers.daemon import Daemon, connect
from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.paths import CHECKOUT

pytestmark = pytest.mark.containers

RUNNER = """
import json, sys
from pathlib import Path
from harness_llm.containers import lifeline
from harness_llm.containers.daemon import connect
from harness_llm.containers.container_stage import run_stage
words = json.loads(sys.argv[1])
with lifeline.hold(Path(words["lifeline"])):
    sys.exit(run_stage(connect(), "stage", words["create"], Path(words["log"]), terminal=words["terminal"]))
"""
TIED = """
import time
from harness_llm.containers import lifeline
lifeline.watch()
print("ready", flush=True)
time.sleep(100)
"""


@pytest.fixture(autouse=True)
def _docker(dockerd: Dockerd, base_image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", dockerd.host)
    monkeypatch.setenv("PATH", f"{PATH}:{os.environ['PATH']}")


@pytest.fixture
def daemon(_docker: None) -> Iterator[Daemon]:
    found = connect()
    yield found
    found.client.close()


@pytest.fixture
def create(base_image: str, tmp_path: Path) -> Callable[..., list[str]]:
    """The command that makes a container as `make submission` does, to run `words`."""
    options = ["--name", "stage", "--rm", "--init", "--network", "host"]
    code = ["--mount", f"type=bind,source={CHECKOUT},target=/lab,readonly"]
    own = ["--mount", f"type=bind,source={tmp_path},target=/own", "--env", "PYTHONPATH=/lab"]
    tied = ["--env", "HARNESS_LLM_LIFELINE=/own/lifeline"]
    return lambda *words, more=(): ["docker", "create", *options, *code, *own, *tied, *more, base_image, *words]


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """A process that runs a stage to its end; its log is `log`."""

    def begin(create: list[str], *, terminal: bool = False, **streams: int) -> "subprocess.Popen[str]":
        words = {"create": create, "log": str(tmp_path / "log"), "lifeline": str(tmp_path / "lifeline")}
        command = [sys.executable, "-c", RUNNER, json.dumps(words | {"terminal": terminal})]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        return subprocess.Popen(["env", "--default-signal=INT", *command], cwd=CHECKOUT, text=True, **pipes)

    return begin


def test_output_of_a_stage_is_printed_and_logged(
    create: Callable[..., list[str]], start: Callable[..., "subprocess.Popen[str]"], dockerd: Dockerd, tmp_path: Path
) -> None:
    process = start(create("sh", "-c", "echo data; echo talk >&2; exit 1"))
    assert process.communicate() == ("data\n", "talk\n")
    assert process.returncode == 1
    assert sorted((tmp_path / "log").read_text().split()) == ["data", "talk"]
    assert not dockerd.docker("ps", "--all", "--quiet")


def test_empty_variable_reaches_the_container_as_empty(
    create: Callable[..., list[str]],
    start: Callable[..., "subprocess.Popen[str]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # As harness_llm/containers/arguments.py passes variables: by name.
    passed = ("--env", "HIP_VISIBLE_DEVICES", "--env", "CUDA_VISIBLE_DEVICES")
    process = start(create("sh", "-c", "env | grep _VISIBLE_DEVICES", more=passed))
    assert process.communicate()[0] == "HIP_VISIBLE_DEVICES=\n"


def test_interruption_arrives_once(
    create: Callable[..., list[str]], start: Callable[..., "subprocess.Popen[str]"], dockerd: Dockerd
) -> None:
    process = start(create("sh", "-c", "trap 'echo caught' INT; echo ready; sleep 2 & wait; wait; exit 130"))
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "caught\n")
    assert err == "stopping the container\n"
    assert not dockerd.docker("ps", "--all", "--quiet")


def test_second_interruption_kills_the_stage(
    create: Callable[..., list[str]], start: Callable[..., "subprocess.Popen[str]"], dockerd: Dockerd
) -> None:
    process = start(create("sh", "-c", "trap '' INT; echo ready; sleep 100"))
    assert process.stdout
    assert process.stderr
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert not dockerd.docker("ps", "--all", "--quiet")


def test_stage_ends_with_the_process_that_started_it(
    create: Callable[..., list[str]], start: Callable[..., "subprocess.Popen[str]"], dockerd: Dockerd
) -> None:
    process = start(create("python3.11", "-c", TIED))
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while dockerd.docker("ps", "--all", "--quiet"):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_terminal_of_a_stage_has_the_size_of_ours(
    create: Callable[..., list[str]], start: Callable[..., "subprocess.Popen[str]"]
) -> None:
    controller, terminal = pty.openpty()
    command = create("sh", "-c", "sleep 1; test -t 1 && stty size <&1", more=("--tty",))
    process = start(command, terminal=True, stdin=terminal, stdout=terminal, stderr=terminal)
    assert process.wait(60) == 0
    assert os.read(controller, 100).decode().split() == ["24", "80"]  # of a terminal of unknown size
    os.close(terminal)
    os.close(controller)


def test_killed_stage_is_a_failure(
    create: Callable[..., list[str]], daemon: Daemon, dockerd: Dockerd, tmp_path: Path
) -> None:
    with pytest.raises(RunFailed, match="stage killed") as caught:
        run_stage(daemon, "stage", create("sh", "-c", "echo last words; kill -9 $$"), tmp_path / "log", terminal=False)
    assert caught.value.found == "exit code 137\nlast words"
    assert not dockerd.docker("ps", "--all", "--quiet")


# docker's package leaves a socket to Python where a container that it is attached to never starts.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_stage_that_cannot_start_leaves_no_container(
    create: Callable[..., list[str]], daemon: Daemon, dockerd: Dockerd, tmp_path: Path
) -> None:
    with pytest.raises(EnvironmentMissing, match="cannot start the container") as caught:
        run_stage(daemon, "stage", create("true", more=("--gpus", "all")), tmp_path / "log", terminal=False)
    assert "could not select device driver" in caught.value.found
    assert not dockerd.docker("ps", "--all", "--quiet")
    mount = ("--mount", "type=bind,source=/nowhere,target=/x")
    with pytest.raises(EnvironmentMissing, match="cannot start the container"):
        run_stage(daemon, "stage", create("true", more=mount), tmp_path / "log", terminal=False)
    gc.collect()
