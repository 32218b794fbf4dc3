"""Monitor of a run: LoadGen's process and the replicas, and the messages between them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from harness_llm.errors import HarnessError, ProcessFailed, rebuild
from harness_llm.protocol.child_processes import Child, Message, watch
from harness_llm.replicas.failure_cause import cause_of_exit
from harness_llm.replicas.pool import PoolEvent, ReplicaPool, ReplicaReady, describe

WATCH_S = 0.5


class Stall:
    """Detects a replica pool that completes no query; times in seconds."""

    def __init__(self, timeout_s: float, since: float) -> None:
        """Start the timer at `since`, or at the first status message."""
        self._timeout_s = timeout_s
        self._seen: tuple[Any, ...] = ()
        self._since = since

    def take(self, body: Mapping[str, Any], now: float) -> None:
        """Take a status message; progress in it resets the timer."""
        seen = tuple(body.get(key) for key in ("event", "issued", "done", "tokens", "ttft"))
        if seen != self._seen or not body.get("unanswered"):
            self._seen, self._since = seen, now

    def check(self, now: float) -> None:
        """Check the timer.

        Raises:
            ProcessFailed: no progress for longer than the timeout.
        """
        if now - self._since > self._timeout_s:
            raise ProcessFailed(
                f"no completions for {self._timeout_s:g} s",
                where="replica pool",
                expected="a completion within twice harness_config.stall_timeout_s",
                hint="see the replica logs of the scenario",
            )


class Watcher(Protocol):
    """Takes the progress of a run."""

    def progress(self, body: Mapping[str, Any]) -> None:
        """Take a status message of LoadGen's process."""


@dataclass
class RunMonitor:
    """Follows one run of LoadGen's process on the replica pool.

    Attributes:
        survives: whether the run continues after the failure of a replica, as long as another one works.
    """

    loadgen: Child
    pool: ReplicaPool
    watcher: Watcher
    survives: bool
    stall: Stall
    _pool_events: list[PoolEvent] = field(default_factory=list)
    _requeued: dict[str, int] = field(default_factory=dict)
    _failure: HarnessError | None = None
    _last: Mapping[str, Any] = field(default_factory=dict)

    @property
    def losses(self) -> list[str]:
        """Failures and restarts of replicas, one sentence each."""
        return [self._sentence(event) for event in self._pool_events]

    def _sentence(self, event: PoolEvent) -> str:
        if isinstance(event, ReplicaReady):
            return f"{event.name} was restarted and joined the run"
        if not event.endpoints:
            return f"{event.name} could not be restarted: {event.cause}"
        queries = sum(self._requeued.get(endpoint.address, 0) for endpoint in event.endpoints)
        return f"{event.name} failed ({event.cause}); {queries} queries were requeued"

    def follow(self) -> Mapping[str, Any]:
        """Return the last status message when LoadGen's process exits with 0.

        Raises:
            HarnessError: LoadGen's process failed, no query completes, or a replica failed and the run cannot continue.
        """
        while True:
            for event in watch([self.loadgen, *self.pool.replicas], WATCH_S):
                if event.child is not self.loadgen:
                    if pool_event := self.pool.handle(event):
                        self._replica(pool_event)
                elif isinstance(event, Message):
                    self._status(event.body)
                elif event.code == 0:
                    return self._last
                else:
                    raise self._failure or ProcessFailed(
                        "LoadGen's process ended without a message",
                        where=str(event.child.log),
                        found=cause_of_exit(event),
                    )
            # After the messages: those of the time in which this process was suspended count.
            self.stall.check(time.monotonic())

    def _status(self, body: Mapping[str, Any]) -> None:
        if body["event"] == "failed":
            self._failure = rebuild(body)
        elif body["event"] == "replica_failed":
            self._requeued[body["address"]] = body["queries"]
            if failed := self.pool.kill(body["address"], body["cause"]):
                self._replica(failed)
        else:
            self.stall.take(body, time.monotonic())
            self.watcher.progress(body)
            self._last = body

    def _replica(self, pool_event: PoolEvent) -> None:
        self._pool_events.append(pool_event)
        self.watcher.progress({"event": "replica", "text": describe(pool_event)})
        if isinstance(pool_event, ReplicaReady):
            self.loadgen.send(event="replica_ready", endpoints=msgspec.to_builtins(pool_event.endpoints))
            return
        if not self.survives or not self.pool.endpoints:
            raise pool_event.failure()
        addresses = [endpoint.address for endpoint in pool_event.endpoints]
        self.loadgen.send(event="replica_failed", addresses=addresses, cause=pool_event.cause)
