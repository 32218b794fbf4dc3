import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness_llm.protocol.child_processes import Child, Exit, Message, start, watch
from harness_llm.protocol.sessions import SHARED

TESTS = Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
PATIENCE_S = 20

Start = Callable[..., Child]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Start]:
    children: list[Child] = []

    def begin(*words: str) -> Child:
        child = start("child", words, name=words[0], log=tmp_path / f"{words[0]}.log", environment=ENVIRONMENT)
        children.append(child)
        return child

    yield begin
    for child in children:
        child.stop(patience_s=0)


def events(*children: Child, until: Callable[[Message | Exit], bool]) -> list[Message | Exit]:
    """What `watch` tells, up to the event that is waited for."""
    found: list[Message | Exit] = []
    deadline = time.monotonic() + PATIENCE_S
    while not any(map(until, found)):
        assert time.monotonic() < deadline, found
        found += watch(children, 1)
    return found


def is_exit(event: Message | Exit) -> bool:
    return isinstance(event, Exit)


def first_words(child: Child) -> dict:
    (message,) = events(child, until=lambda _: True)
    assert isinstance(message, Message), child.last_lines()
    return message.body


def is_gone(pid: int) -> bool:
    """Whether the process ends soon; a zombie has ended."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_a_child_is_heard_to_its_end(begin: Start) -> None:
    child = begin("talk")
    *said, end = events(child, until=is_exit)
    assert [message.body["event"] for message in said if isinstance(message, Message)] == ["one", "two", "three"]
    assert len(said[1].body["text"]) == 200_000
    assert end == Exit(child, 3)
    assert child.last_lines(2) == "line 18\nline 19"


def test_several_children_are_told_apart(begin: Start) -> None:
    talker, waiter = begin("talk"), begin("wait")
    found = events(talker, waiter, until=is_exit)
    assert [event.child for event in found if is_exit(event)] == [talker]
    if not any(event.child is waiter for event in found):
        assert first_words(waiter)["event"] == "up"
    assert list(watch([waiter], 0)) == []


def test_a_signal_is_a_negative_code(begin: Start) -> None:
    child = begin("wait")
    first_words(child)
    os.kill(child.process.pid, signal.SIGKILL)
    assert events(child, until=is_exit) == [Exit(child, -signal.SIGKILL)]


def test_a_child_that_died_is_seen_though_its_helper_lives(begin: Start) -> None:
    child = begin("family")
    helper = first_words(child)["helper"]
    os.kill(child.process.pid, signal.SIGKILL)
    assert events(child, until=is_exit) == [Exit(child, -signal.SIGKILL)]
    child.stop()
    assert is_gone(helper)


def test_stop_takes_the_whole_session(begin: Start) -> None:
    child = begin("family")
    helper = first_words(child)["helper"]
    before = time.monotonic()
    child.stop()
    assert time.monotonic() - before < 4, "the lifeline was not enough"
    assert is_gone(child.process.pid)
    assert is_gone(helper)


def test_stop_is_not_held_up_by_a_deaf_child(begin: Start) -> None:
    child = begin("deaf")
    first_words(child)
    assert child.stop(patience_s=0.1) == -signal.SIGKILL


def test_no_shared_memory_stays_of_a_child_that_was_killed(begin: Start) -> None:
    child = begin("sharing")
    said = first_words(child)
    memory = Path(SHARED, said["memory"])
    assert memory.exists()
    os.kill(child.process.pid, signal.SIGKILL)
    child.stop()
    assert is_gone(said["helper"])
    assert not memory.exists()


def test_no_shared_memory_stays_of_a_child_whose_parent_was_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "child", "parent", str(tmp_path / "log"), "sharing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | ENVIRONMENT) as parent:
        assert parent.stdout
        said = json.loads(parent.stdout.readline())
        memory = Path(SHARED, said["memory"])
        assert memory.exists()
        parent.kill()
    assert is_gone(said["pid"])
    assert not memory.exists()


def test_a_child_exits_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "child", "parent", str(tmp_path / "log"), "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | ENVIRONMENT) as parent:
        assert parent.stdout
        child = json.loads(parent.stdout.readline())["pid"]
        assert psutil.pid_exists(child)
        parent.kill()
    assert is_gone(child)


def test_what_a_child_had_is_cleaned_up_when_its_parent_is_gone(begin: Start, tmp_path: Path) -> None:
    folder = tmp_path / "sockets"
    folder.mkdir()
    (folder / "replica-0").touch()
    child = begin("wait", str(folder))
    first_words(child)
    assert folder.is_dir()
    child.stop()
    assert not folder.exists()


def guarded(folder: Path, *words: str) -> Child:
    command = [str(folder), sys.executable, "-m", "child", *words]
    log = folder.parent / "guard.log"
    return start("harness_llm.protocol.guard", command, name="guard", log=log, environment=ENVIRONMENT)


def test_a_guard_kills_a_stopped_command_when_its_parent_exits(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    guard = guarded(folder, "sharing")
    said = first_words(guard)
    os.kill(said["pid"], signal.SIGSTOP)
    guard.stop(PATIENCE_S)
    assert is_gone(said["pid"])
    assert is_gone(said["helper"])
    assert not Path(SHARED, said["memory"]).exists()
    assert not folder.exists()


@pytest.mark.parametrize(("sent", "code"), [(None, 3), (signal.SIGKILL, 128 + signal.SIGKILL)])
def test_a_guard_exits_with_the_code_of_its_command(tmp_path: Path, sent: int | None, code: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    guard = guarded(folder, "wait" if sent else "talk")
    if sent:
        os.kill(first_words(guard)["pid"], sent)
    assert events(guard, until=is_exit)[-1] == Exit(guard, code)
    guard.stop()
    assert folder.exists(), "a restarted replica uses it again"
