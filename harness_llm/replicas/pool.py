"""Replica pool: start, watch and restart the processes of the replicas."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness_llm.errors import HarnessError, ProcessFailed, rebuild
from harness_llm.protocol.child_processes import KILL_TIMEOUT_S, Child, Exit, Message, stop_all, watch
from harness_llm.protocol.messages import Endpoint
from harness_llm.replicas.failure_cause import cause_before_exit, cause_of_exit
from harness_llm.replicas.pool_folder import PoolFolder
from harness_llm.replicas.profile_control import PROFILE, PROFILED
from harness_llm.replicas.start_phase import LogTail
from harness_llm.replicas.start_progress import ProcessStart, StartStatus, status_of

MAX_SHORT_RUNS = 3
SHORT_S = 20.0

Start = Callable[[int], Child]
"""Starts a process; the argument is the number of its earlier starts."""

Report = Callable[[StartStatus], None]
"""Takes the phases of the processes about once per second while one of them starts."""

_REPORT_S = 1.0


def may_restart(uptimes_s: Sequence[float]) -> bool:
    """Return whether to restart a process, by the seconds from ready to exit of each start; 0 if never ready.

    A process that failed MAX_SHORT_RUNS times in a row within SHORT_S is not restarted.
    """
    return len(uptimes_s) < MAX_SHORT_RUNS or any(uptime_s >= SHORT_S for uptime_s in uptimes_s[-MAX_SHORT_RUNS:])


@dataclass(frozen=True)
class ReplicaFailed:
    """The process of one or more replicas has exited or was killed.

    Attributes:
        endpoints: of its replicas; empty if it was not ready.
        cause: in one line.
        error: that it reported before it exited.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    cause: str
    log: Path
    error: HarnessError | None = None

    def failure(self) -> HarnessError:
        """Return the error of a run that needs this process."""
        return self.error or ProcessFailed(f"{self.name} failed", where=str(self.log), found=self.cause)


@dataclass(frozen=True)
class ReplicaReady:
    """The process of one or more replicas is ready."""

    name: str
    endpoints: tuple[Endpoint, ...]


PoolEvent = ReplicaFailed | ReplicaReady


def describe(event: PoolEvent) -> str:
    """Return one line about `event`."""
    return f"{event.name} failed: {event.cause}" if isinstance(event, ReplicaFailed) else f"{event.name} is ready again"


@dataclass
class _Process:
    """A process of one or more replicas, over all its starts; times in seconds of the monotonic clock.

    Attributes:
        endpoints: of the running process; empty until it is ready, and once it was killed.
        ready: when the running process was ready; 0 before.
        killed: when the running process was killed; 0 before.
        failed: whether the failure of the running process was reported before its exit.
        uptimes_s: of earlier starts, from ready to exit.
        cause: of its exit, if known before the exit.
        profiling: whether its trace is not written yet.
        phases: of the current start.
    """

    name: str
    launch: Start
    phases: ProcessStart
    child: Child | None = None
    endpoints: tuple[Endpoint, ...] = ()
    started: float = 0.0
    ready: float = 0.0
    killed: float = 0.0
    failed: bool = False
    uptimes_s: list[float] = field(default_factory=list)
    cause: str = ""
    error: HarnessError | None = None
    profiling: bool = False

    def start(self) -> None:
        self.endpoints, self.cause, self.error = (), "", None
        self.ready, self.killed, self.failed = 0.0, 0.0, False
        self.started = time.monotonic()
        self.phases.begin(self.started)
        self.child = self.launch(len(self.uptimes_s))

    def kill(self, cause: str) -> None:
        self.cause = self.cause or cause
        self.killed = self.killed or time.monotonic()
        if self.child:
            self.child.process.kill()  # `record_exit` kills the rest of its session

    def fail(self, child: Child, cause: str) -> ReplicaFailed:
        """Kill the running process `child`; return its failure without waiting for its exit."""
        self.kill(cause)
        failed = ReplicaFailed(self.name, self.endpoints, cause_before_exit(child, self.cause), child.log, self.error)
        self.endpoints, self.failed, self.profiling = (), True, False
        return failed

    def record_exit(self, event: Exit) -> ReplicaFailed:
        failed = ReplicaFailed(
            self.name,
            self.endpoints,
            cause_of_exit(event, self.cause),
            event.child.log,
            self.error,
        )
        self.uptimes_s.append(time.monotonic() - self.ready if self.ready else 0.0)
        event.child.stop(patience_s=0)
        self.child, self.endpoints = None, ()
        return failed

    def require_exit(self) -> None:
        """Check that the process exits after it was killed.

        Raises:
            ProcessFailed: it has not exited in time.
        """
        if self.child and self.killed and time.monotonic() - self.killed > KILL_TIMEOUT_S:
            raise ProcessFailed(
                f"{self.name} does not exit",
                where=str(self.child.log),
                expected=f"exit within {KILL_TIMEOUT_S:g} s after SIGKILL",
                found=self.cause,
                hint="a driver may block the process: reset its device or restart the node",
            )


class ReplicaPool:
    """All replicas of a run; restarts failed ones unless they fail repeatedly.

    Attributes:
        folder: of sockets and temporary files; removed with the replica pool.
        keys: file with the CURVE keys of LoadGen's process.
        loadgen_cpus: cores of LoadGen's process.
    """

    def __init__(self, folder: PoolFolder, loadgen_cpus: list[int], startup_timeout_s: float) -> None:
        """Create a pool without replicas."""
        self.folder = folder.path
        self.keys = folder.path / "client.keys"
        self.loadgen_cpus = loadgen_cpus
        self._own_folder = folder
        self._startup_timeout_s = startup_timeout_s
        self._processes: list[_Process] = []
        self._last_failure: dict[str, ReplicaFailed] = {}

    @property
    def replicas(self) -> list[Child]:
        """The running processes."""
        return [process.child for process in self._processes if process.child]

    @property
    def endpoints(self) -> list[Endpoint]:
        """Endpoints of the ready replicas."""
        return [endpoint for process in self._processes for endpoint in process.endpoints]

    def start(
        self, launchers: Mapping[str, Start], report: Report, logs: Mapping[str, Sequence[Path]] | None = None
    ) -> None:
        """Start all processes at once; return when all are ready.

        Args:
            report: takes the phases of the start.
            logs: of each process and of the server that it starts; the phases are read from them.

        Raises:
            ProcessFailed: a process exited or was not ready in time.
            HarnessError: that a replica reported.
        """
        self._processes = [
            _Process(name, launch, ProcessStart([LogTail(log) for log in (logs or {}).get(name, ())]))
            for name, launch in launchers.items()
        ]
        for process in self._processes:
            process.start()
        for event in self._events_until_ready(report, restart=False):
            if isinstance(event, ReplicaFailed):
                raise event.failure()

    def await_restarts(self, say: Callable[[str], None], report: Report = lambda _: None) -> None:
        """Wait for the replicas that are being restarted; `say` takes a line per failure or restart.

        Raises:
            ProcessFailed: a process failed repeatedly and is not restarted, or does not exit after it was killed.
        """
        for event in self._events_until_ready(report, restart=True):
            say(describe(event))
        for process in self._processes:
            if not process.child:
                failure = self._last_failure[process.name].failure()
                failure.hint = failure.hint or "remove the cause; the same command then continues with what is missing"
                raise failure

    def _events_until_ready(self, report: Report, *, restart: bool) -> Iterator[PoolEvent]:
        """Yield events until no process is starting or was killed and has not exited."""
        timeout_s = 0.0  # first, events that have occurred already
        began: float | None = None
        while True:
            for event in watch(self.replicas, timeout_s):
                if pool_event := self.handle(event, restart=restart):
                    yield pool_event
            waiting = [process for process in self._processes if process.child and not process.endpoints]
            starting = [process for process in waiting if not process.killed]
            if starting and began is None:
                began = min(process.started for process in starting)
            if began is not None:
                report(self._status(starting, began))
            if not waiting:
                return
            for process in starting:
                if time.monotonic() - process.started > self._startup_timeout_s:
                    process.kill(f"not ready in {self._startup_timeout_s:g} s (harness_config.startup_timeout_s)")
            for process in waiting:
                process.require_exit()
            timeout_s = _REPORT_S

    def _status(self, starting: Sequence[_Process], began: float) -> StartStatus:
        """Return the phases of all processes, after reading the logs of `starting` ones."""
        now = time.monotonic()
        for process in starting:
            process.phases.read(now)
        return status_of({process.name: process.phases for process in self._processes}, now - began)

    def handle(self, event: Message | Exit, *, restart: bool = True) -> PoolEvent | None:
        """Process an event of one of `replicas`; with `restart`, restart a failed one if `may_restart`.

        The exit of a process is no event of the pool if `kill` has returned its failure.
        """
        process = next(process for process in self._processes if process.child is event.child)
        if isinstance(event, Exit):
            reported, failed = process.failed, process.record_exit(event)
            if not reported:
                self._last_failure[process.name] = failed
            if restart and may_restart(process.uptimes_s):
                process.start()
            return None if reported else failed
        process.phases.take(event.body, time.monotonic())
        if event.body["event"] == "ready":
            process.ready = time.monotonic()
            process.endpoints = tuple(msgspec.convert(event.body["endpoints"], list[Endpoint]))
            return ReplicaReady(process.name, process.endpoints)
        if event.body["event"] == "failed":
            process.error = rebuild(event.body)
            process.cause = process.error.line
        elif event.body["event"] == PROFILED:
            process.profiling = event.body["on"]
        elif event.body["event"] == "raised":
            process.cause = f"exception {event.body['error']}"
        return None

    def profile(self, *, on: bool) -> None:
        """Start or stop the profilers of all replicas."""
        for process in self._processes:
            if process.child:
                process.profiling = True
                process.child.send(event=PROFILE, on=on)

    def await_profiles(self, timeout_s: float) -> None:
        """Wait until all replicas have stopped their profilers and written the traces.

        Raises:
            ProcessFailed: a replica failed, or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        while waiting := [process for process in self._processes if process.child and process.profiling]:
            for event in watch(self.replicas, _REPORT_S):
                if isinstance(pool_event := self.handle(event, restart=False), ReplicaFailed):
                    raise pool_event.failure()
            if time.monotonic() > deadline:
                raise ProcessFailed(
                    "no trace of the profiler",
                    where=", ".join(process.name for process in waiting),
                    expected=f"a trace within {timeout_s:g} s",
                    hint="a shorter --profile-window",
                )

    def kill(self, address: str, cause: str) -> ReplicaFailed | None:
        """Kill the process of the replica at `address`; return the failure of all its replicas, None if it has failed.

        The failure does not wait for the exit: a process that a driver blocks may never exit.
        """
        for process in self._processes:
            if process.child and address in [endpoint.address for endpoint in process.endpoints]:
                failed = self._last_failure[process.name] = process.fail(process.child, cause)
                return failed
        return None

    def stop(self) -> None:
        """Stop all replicas and remove the folder."""
        stop_all(self.replicas)
        self._own_folder.remove()
