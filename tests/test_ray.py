"""Replicas on a real Ray cluster: two raylets on this machine, each with its own address."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from terminal import Ended, Terminal
from waiting import wait_until

from harness_llm.errors import EnvironmentMissing
from harness_llm.loadgen.logs import ACCURACY, DETAIL, read_accuracy_log
from harness_llm.paths import ROOT_VARIABLE, Workspace
from harness_llm.replicas.ray.cluster import query_cluster
from harness_llm.runs.record import Run, State, find_runs

pytestmark = [pytest.mark.engine(seconds=500), pytest.mark.slow, pytest.mark.processes]

RAY = Path(sys.executable).with_name("ray")
HEAD, OTHER = "127.0.0.2", "127.0.0.3"
SYSTEM = "pytest-cluster"
PATIENCE_S = 1200  # Ray gives its workers niceness 15: beside other programs they are slow
QUIET = ("--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0", "--object-store-memory=80000000")
CPUS = 2  # of each node, one of the head's for LoadGen


@dataclass
class RayCluster:
    """Two nodes; the environment of each process has the address of its node."""

    port: int
    folder: Path
    environment: dict[str, str]

    @property
    def address(self) -> str:
        return f"{HEAD}:{self.port}"

    def start(self, node: str, cores: Sequence[int], *words: str) -> None:
        # With fixed ports Ray does not wait for its agent, which it ends after 15 s on a loaded machine.
        agent = [f"--dashboard-agent-{kind}-port={free_port()}" for kind in ("grpc", "listen")]
        with (self.folder / f"{node}.log").open("ab") as log:
            subprocess.run(
                [
                    *("taskset", "-c", ",".join(map(str, cores))),
                    RAY,
                    "start",
                    *words,
                    f"--node-ip-address={node}",
                    f"--num-cpus={CPUS}",
                    "--num-gpus=0",
                    *agent,
                    *QUIET,
                ],
                env=self.environment | {"PYTEST_RAY_NODE": self._mark(node)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=PATIENCE_S,
                check=True,
            )

    def processes(self, node: str) -> list[psutil.Process]:
        return [p for p in psutil.process_iter() if _environment(p).get("PYTEST_RAY_NODE") == self._mark(node)]

    def _mark(self, node: str) -> str:
        """Value of the environment variable of the node's processes; other clusters have other ports."""
        return f"{node}:{self.port}"

    def mend(self) -> None:
        """Start the other node unless it runs; a replica with more threads than cores waits for them."""
        if not self.processes(OTHER):
            self.start(OTHER, sorted(os.sched_getaffinity(0))[-1:], f"--address={self.address}")
            wait_until(lambda: OTHER in self.joined(), 60, "the node in the cluster")

    def joined(self) -> list[str]:
        """Addresses of the nodes that answer a query."""
        return [node.address for node in query_cluster(self.address, self.folder / "query.log").nodes]

    def lose(self, node: str) -> None:
        """Kill all processes of the node at once, as a power failure does; the folders of its replicas remain."""
        killed = self.processes(node)
        for process in killed:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(killed, PATIENCE_S)

    def folders(self) -> set[Path]:
        """Folders of replicas on both nodes."""
        return set(self.folder.glob("harness-llm-*"))

    def replicas(self, node: str) -> list[psutil.Process]:
        return [p for p in self.processes(node) if "harness_llm.replicas.replica" in _words(p)]


def _environment(process: psutil.Process) -> dict[str, str]:
    with contextlib.suppress(psutil.Error):
        return process.environ()
    return {}


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


@pytest.fixture(scope="module")
def head(workspace: Workspace) -> Iterator[RayCluster]:
    """A cluster with its head alone."""
    if not RAY.exists():
        pytest.skip("Ray is not installed: make tools")
    folder = Path(tempfile.mkdtemp(prefix="ray-"))
    environment = os.environ | {ROOT_VARIABLE: str(workspace.root), "TMPDIR": str(folder)}
    cluster = RayCluster(free_port(), folder, environment)
    try:
        head = ("--head", f"--port={cluster.port}", "--include-dashboard=false", f"--temp-dir={folder}")
        cores = sorted(os.sched_getaffinity(0))
        cluster.start(HEAD, cores, *head)
        yield cluster
    finally:
        for node in (OTHER, HEAD):
            cluster.lose(node)
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HEAD, 0))
        port: int = probe.getsockname()[1]
        return port


WORDS = ("--company", "Acme", "--system-name", SYSTEM, "--set", "harness_config.replicas=2")


@pytest.fixture
def ray(head: RayCluster) -> RayCluster:
    """A cluster of two nodes, whatever earlier tests ended."""
    head.mend()
    return head


@pytest.fixture(scope="module")
def submitted(head: RayCluster, terminal: Terminal) -> Ended:
    head.mend()
    return terminal.until_valid(lambda: terminal.start("submit", *WORDS, "--ray", head.address).wait(PATIENCE_S))


def test_submission_over_two_nodes_is_checked(submitted: Ended, workspace: Workspace) -> None:
    assert submitted.code == 0, submitted.err
    assert "0 errors" in submitted.err
    for address in (HEAD, OTHER):
        assert f"{address}: {CPUS} CPUs, 0 accelerators" in submitted.err
    (description,) = workspace.submission.rglob(f"systems/{SYSTEM}.json")
    assert json.loads(description.read_text())["number_of_nodes"] == "2"


def test_run_record_lists_every_node_and_no_secret(submitted: Ended, workspace: Workspace) -> None:
    runs = find_runs(workspace.logs, SYSTEM)
    assert {run.state for run in runs} == {State.VALID}
    assert {run.run_key.scenario for run in runs} == {"Offline", "Server"}
    for run in runs:
        assert run.record
        assert list(run.record.nodes) == [HEAD, OTHER]
        assert len(run.record.fingerprint["nodes"]) == 2
        assert run.record.nodes[OTHER].host["kernel"] == os.uname().release
        spec = json.loads((run.path / "loadgen.json").read_text())
        places = [endpoint["address"] for endpoint in spec["endpoints"]]
        assert sorted(place.rpartition(":")[0] for place in places) == [f"tcp://{HEAD}", f"tcp://{OTHER}"]
        assert all(len(endpoint["key"]) == 40 for endpoint in spec["endpoints"])
        assert "secret" not in (run.path / "loadgen.json").read_text()


def test_submission_leaves_no_replica_and_no_folder_on_the_nodes(submitted: Ended, ray: RayCluster) -> None:
    wait_until(lambda: not ray.replicas(HEAD) + ray.replicas(OTHER), 300, "the end of the replicas")
    wait_until(lambda: not ray.folders(), 300, "the end of their folders")


def test_node_without_the_checkpoint_is_named(ray: RayCluster, workspace: Workspace) -> None:
    missing = workspace.root / "nowhere"
    with pytest.raises(EnvironmentMissing) as raised:
        query_cluster(ray.address, workspace.root / "survey.log", [missing])
    assert str(missing) in raised.value.where


def test_node_is_queried_right_after_its_restart(ray: RayCluster) -> None:
    """Ray regards the failed node as alive until its health check fails."""
    ray.lose(OTHER)
    ray.mend()
    assert ray.joined() == [HEAD, OTHER]


def test_queries_of_a_failed_node_are_requeued(submitted: Ended, ray: RayCluster, terminal: Terminal) -> None:
    before = len(find_runs(terminal.workspace.logs, SYSTEM))
    command = terminal.start(
        "run",
        *WORDS,
        *("--ray", ray.address, "--scenarios", "Offline", "--tests", "accuracy"),
        *("--set", "harness_config.heartbeat_timeout_s=20"),
    )
    wait_until(lambda: is_answered(terminal, before) or command.process.poll() is not None, PATIENCE_S, "answers")
    assert ray.replicas(OTHER)
    ray.lose(OTHER)
    end = command.wait(PATIENCE_S)
    assert end.code == 0, end.err
    run = newest(terminal)
    assert run.state is State.VALID
    assert run.record
    assert any("replica-0 failed" in note or "replica-1 failed" in note for note in run.notes)
    answers = read_accuracy_log(run.path / ACCURACY)
    assert sorted(answer.qsl_idx for answer in answers) == list(range(2048))
    wait_until(lambda: not ray.replicas(HEAD), 300, "the end of the remaining replica")
    for left in ray.folders():
        shutil.rmtree(left, ignore_errors=True)


def newest(terminal: Terminal) -> Run:
    return find_runs(terminal.workspace.logs, SYSTEM)[-1]


def is_answered(terminal: Terminal, before: int) -> bool:
    """Whether LoadGen asks its queries in another run than those `before`; it takes 10 s and more."""
    if len(find_runs(terminal.workspace.logs, SYSTEM)) == before:
        return False
    log = newest(terminal).path / DETAIL
    return log.is_file() and log.stat().st_size > 0
