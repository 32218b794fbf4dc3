"""Child processes of tests: `python -m child WHAT ...`."""

import json
import os
import sys
import time
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

from harness_llm.errors import EnvironmentMissing
from harness_llm.protocol.child_processes import STATUS_VARIABLE, Parent, before_exit, start, watch

LONG_S = 60


def talk() -> None:
    """Send three messages, one of them longer than a pipe's buffer, and exit."""
    parent = Parent()
    parent.send(event="one")
    parent.send(event="two", text="x" * 200_000)
    sys.stdout.write("".join(f"line {i}\n" for i in range(20)))
    parent.send(event="three")
    sys.exit(3)


def flood(count: str, size: str) -> None:
    """Offer more messages of `size` characters than a pipe holds, then send one and exit."""
    parent = Parent()
    for number in range(int(count)):
        parent.offer(event="progress", number=number, text="x" * int(size))
    sys.stdout.write("offered\n")
    sys.stdout.flush()
    parent.send(event="done", text="y" * 200_000)
    os._exit(0)


def wait(clean_up: str = "") -> None:
    """Wait until the parent or a signal ends this process."""
    Parent(Path(clean_up) if clean_up else None).send(event="up", pid=os.getpid())
    time.sleep(LONG_S)


def deaf() -> None:
    """Watch neither the lifeline nor signals."""
    os.write(int(os.environ[STATUS_VARIABLE]), b'{"event": "up"}\n')
    time.sleep(LONG_S)


def node_query(seconds: str, node: str) -> None:
    """Report `node` (JSON) after `seconds`, as the query of a Ray cluster does."""
    parent = Parent()
    time.sleep(float(seconds))
    parent.send(event="node", node=json.loads(node))


def waiting(own: str, other: str) -> None:
    """Exit slowly: create the folder `own`, and `own`/seen as soon as the folder `other` exists."""

    def end() -> None:
        Path(own).mkdir()
        while not Path(other).exists():
            time.sleep(0.01)
        (Path(own) / "seen").touch()

    before_exit(end)
    Parent().send(event="up")
    time.sleep(LONG_S)


def family() -> None:
    """Have a forked helper, as engines have."""
    parent = Parent()
    helper = os.fork()
    if not helper:
        time.sleep(LONG_S)
        os._exit(0)
    parent.send(event="up", helper=helper)
    time.sleep(LONG_S)


def sharing() -> None:
    """Share memory with a helper, as engines of several processes do."""
    own = Parent()
    memory = SharedMemory(create=True, size=1 << 16)
    helper = os.fork()
    if not helper:
        time.sleep(LONG_S)
        os._exit(0)
    own.send(event="up", helper=helper, memory=memory.name, pid=os.getpid())
    time.sleep(LONG_S)


def replica(life: str, *more: str) -> None:
    """Report the named replicas as ready; `life` is the number of starts before."""
    addresses = [f"ipc://replica-{name}.{life}" for name in more]
    endpoints = [{"address": address, "heartbeat": f"{address}.heartbeat"} for address in addresses]
    Parent().send(event="ready", endpoints=endpoints)
    time.sleep(LONG_S)


def failing() -> None:
    """Exit before being ready."""
    Parent()
    sys.stdout.write("first line\nno such device\n")
    sys.stdout.flush()
    os._exit(3)


def explaining() -> None:
    """Exit before being ready, with an error message."""
    Parent().send(event="failed", **EnvironmentMissing("there is no server", where="here").facts())
    os._exit(3)


def raising() -> None:
    """Be ready, then exit as a replica whose engine raises."""
    said = Parent()
    said.send(event="ready", endpoints=[{"address": "ipc://replica-a.0", "heartbeat": "ipc://heartbeat"}])
    while not said.messages.take():
        time.sleep(0.02)
    said.send(event="raised", error="OutOfMemoryError('tried to allocate 20 GiB')")
    os._exit(4)


def profiling(traces: str, fails: str = "") -> None:
    """Be ready, and act as a replica with a profiler; with `fails`, exit instead of writing a trace."""
    own = Parent()
    own.send(event="ready", endpoints=[{"address": f"ipc://{traces}", "heartbeat": "ipc://heartbeat"}])
    while True:
        for message in own.messages.take():
            if fails and not message["on"]:
                os._exit(4)
            if not message["on"]:
                Path(traces).mkdir(parents=True)
                (Path(traces) / "rank-0.1.pt.trace.json.gz").write_bytes(b"")
            own.send(event="profiled", on=message["on"])
        time.sleep(0.02)


def mute() -> None:
    """Never be ready."""
    Parent()
    time.sleep(LONG_S)


def loadgen(*says: str) -> None:
    """Act as LoadGen's process: send `says`, echo every message, finish when a replica has joined."""
    own = Parent()
    for line in says:
        own.send(**json.loads(line))
    while True:
        for message in own.messages.take():
            own.send(event="progress", heard=message)
            if message["event"] == "replica_ready":
                own.send(event="finished", counters=[])
                os._exit(0)
        time.sleep(0.02)


def brief(*says: str) -> None:
    """Act as LoadGen's process of a short run: send `says` and exit."""
    own = Parent()
    for line in says:
        own.send(**json.loads(line))
    os._exit(0)


def parent(log: str, what: str, *arguments: str) -> None:
    """Start a child and pass on its first message."""
    grandchild = start("child", [what, *arguments], name="grandchild", log=Path(log), environment={})
    (said,) = watch([grandchild], LONG_S)
    sys.stdout.write(json.dumps(said.body) + "\n")
    sys.stdout.flush()
    time.sleep(LONG_S)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
