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
from waiting import ends, wait_until

from harness_llm.protocol import child_processes
from harness_llm.protocol.child_processes import Child, Exit, Message, start, stop_all, watch
from harness_llm.protocol.sessions import SHARED

pytestmark = pytest.mark.processes

TESTS = Path(__file__).resolve().parent
ENVIRONMENT = {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"}
PATIENCE_S = 120

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


def test_messages_of_a_child_arrive_up_to_its_exit(begin: Start) -> None:
    child = begin("talk")
    *said, end = events(child, until=is_exit)
    assert [message.body["event"] for message in said if isinstance(message, Message)] == ["one", "two", "three"]
    assert len(said[1].body["text"]) == 200_000
    assert end == Exit(child, 3)
    assert child.last_lines(2) == "line 18\nline 19"


@pytest.mark.parametrize("size", [100, 30_000])  # below and above PIPE_BUF, up to which a write is not split
def test_offered_messages_are_discarded_while_the_parent_does_not_read(begin: Start, size: int) -> None:
    child = begin("flood", "2000", str(size))
    wait_until(lambda: child.log.exists() and "offered" in child.output(), PATIENCE_S, "the end of the offers")
    *said, end = events(child, until=is_exit)
    *offered, last = [message.body for message in said if isinstance(message, Message)]
    numbers = [message["number"] for message in offered]
    assert 0 < len(numbers) < 2000
    assert numbers == list(range(len(numbers))), "the pipe was full from then on"
    assert {len(message["text"]) for message in offered} == {size}
    assert (last["event"], len(last["text"])) == ("done", 200_000)
    assert end == Exit(child, 0)


def test_messages_of_several_children_are_distinguished(begin: Start) -> None:
    talker, waiter = begin("talk"), begin("wait")
    found = events(talker, waiter, until=is_exit)
    assert [event.child for event in found if is_exit(event)] == [talker]
    if not any(event.child is waiter for event in found):
        assert first_words(waiter)["event"] == "up"
    assert list(watch([waiter], 0)) == []


def test_exit_by_signal_has_a_negative_code(begin: Start) -> None:
    child = begin("wait")
    first_words(child)
    os.kill(child.process.pid, signal.SIGKILL)
    assert events(child, until=is_exit) == [Exit(child, -signal.SIGKILL)]


def test_exit_of_a_child_is_seen_while_its_helper_runs(begin: Start) -> None:
    child = begin("family")
    helper = first_words(child)["helper"]
    os.kill(child.process.pid, signal.SIGKILL)
    assert events(child, until=is_exit) == [Exit(child, -signal.SIGKILL)]
    child.stop()
    assert ends(helper)


def test_stop_ends_the_whole_session(begin: Start) -> None:
    child = begin("family")
    helper = first_words(child)["helper"]
    before = time.monotonic()
    child.stop(patience_s=PATIENCE_S)
    assert time.monotonic() - before < PATIENCE_S, "the child was killed after the wait"
    assert ends(child.process.pid)
    assert ends(helper)


def test_stop_kills_a_child_that_does_not_react(begin: Start) -> None:
    child = begin("deaf")
    first_words(child)
    assert child.stop(patience_s=0.1) == -signal.SIGKILL


def test_stop_does_not_wait_for_a_child_that_cannot_be_killed(begin: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child = begin("deaf")
    first_words(child)
    with monkeypatch.context() as patch:
        patch.setattr(child_processes, "kill_session", lambda _: None)
        patch.setattr(child_processes, "KILL_TIMEOUT_S", 0.1)
        assert child.stop(patience_s=0) is None


def test_stopped_children_exit_at_the_same_time(begin: Start, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in "ab"]
    children = [begin("waiting", *order) for order in (folders, folders[::-1])]
    for child in children:
        first_words(child)
    stop_all(children, PATIENCE_S)
    assert [(Path(folder) / "seen").exists() for folder in folders] == [True, True]


def test_shared_memory_of_a_killed_child_is_removed(begin: Start) -> None:
    child = begin("sharing")
    said = first_words(child)
    memory = Path(SHARED, said["memory"])
    assert memory.exists()
    os.kill(child.process.pid, signal.SIGKILL)
    child.stop()
    assert ends(said["helper"])
    assert not memory.exists()


def test_shared_memory_is_removed_when_the_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "child", "parent", str(tmp_path / "log"), "sharing"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | ENVIRONMENT) as parent:
        assert parent.stdout
        said = json.loads(parent.stdout.readline())
        memory = Path(SHARED, said["memory"])
        assert memory.exists()
        parent.kill()
    assert ends(said["pid"])
    assert not memory.exists()


def test_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "child", "parent", str(tmp_path / "log"), "wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | ENVIRONMENT) as parent:
        assert parent.stdout
        child = json.loads(parent.stdout.readline())["pid"]
        assert psutil.pid_exists(child)
        parent.kill()
    assert ends(child)


def test_folder_of_a_child_is_removed_when_its_parent_ends(begin: Start, tmp_path: Path) -> None:
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
    assert ends(said["pid"])
    assert ends(said["helper"])
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
