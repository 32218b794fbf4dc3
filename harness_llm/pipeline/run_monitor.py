"""Watches over one run: LoadGen's process, the replicas, and that each hears of the other."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from harness_llm.errors import HarnessError, RunFailed, rebuild
from harness_llm.protocol.child_processes import Child, Exit, Message, watch
from harness_llm.replicas.pool import PoolEvent, ReplicaPool, ReplicaReady

WATCH_S = 0.5


class Stall:
    """Notices a replica pool that lives and answers nothing; times in seconds."""

    def __init__(self, timeout_s: float) -> None:
        """Start the clock with the first status line."""
        self._timeout_s = timeout_s
        self._seen: tuple[Any, ...] = ()
        self._since: float | None = None

    def take(self, body: Mapping[str, Any], now: float) -> None:
        """A status line: anything new in it starts the clock again."""
        seen = tuple(body.get(key) for key in ("event", "issued", "done", "tokens", "ttft_ms"))
        if seen != self._seen or not body.get("in_flight"):
            self._seen, self._since = seen, now

    def check(self, now: float) -> None:
        """Raise RunFailed where nothing new was heard for too long."""
        if self._since is not None and now - self._since > self._timeout_s:
            raise RunFailed(
                "the replica pool answers no more",
                expected=f"an answer within {self._timeout_s:g} s (twice harness_config.stall_timeout_s)",
                hint="look at the replica logs of the scenario",
            )


class Watcher(Protocol):
    """Is told how a run goes."""

    def progress(self, body: Mapping[str, Any]) -> None:
        """A status line of LoadGen's process."""


@dataclass
class RunMonitor:
    """One run of LoadGen's process `loadgen` on `replica pool`.

    Attributes:
        survives: whether the run goes on without a replica that is lost, as long as there is another.
    """

    loadgen: Child
    pool: ReplicaPool
    watcher: Watcher
    survives: bool
    stall: Stall
    _pool_events: list[PoolEvent] = field(default_factory=list)
    _again: dict[str, int] = field(default_factory=dict)
    _failure: HarnessError | None = None
    _last: Mapping[str, Any] = field(default_factory=dict)

    @property
    def losses(self) -> list[str]:
        """What became of replicas, one sentence each."""
        return [self._sentence(event) for event in self._pool_events]

    def _sentence(self, event: PoolEvent) -> str:
        if isinstance(event, ReplicaReady):
            return f"{event.name} was started again and took part"
        if not event.endpoints:
            return f"{event.name} could not be started again: {event.cause}"
        queries = sum(self._again.get(endpoint.address, 0) for endpoint in event.endpoints)
        return f"{event.name} was lost ({event.cause}); its queries, {queries}, were issued again"

    def follow(self) -> Mapping[str, Any]:
        """The last status line, once LoadGen's process has finished well; raise whatever else happens."""
        while True:
            self.stall.check(time.monotonic())
            for event in watch([self.loadgen, *self.pool.replicas], WATCH_S):
                if event.child is not self.loadgen:
                    self._replica(event)
                elif isinstance(event, Message):
                    self._status(event.body)
                elif event.code == 0:
                    return self._last
                else:
                    raise self._failure or _died(event)

    def _status(self, body: Mapping[str, Any]) -> None:
        if body["event"] == "failed":
            self._failure = rebuild(body)
        elif body["event"] == "replica_failed":
            self._again[body["address"]] = body["queries"]
            self.pool.kill(body["address"], body["cause"])
        else:
            self.stall.take(body, time.monotonic())
            self.watcher.progress(body)
            self._last = body

    def _replica(self, event: Message | Exit) -> None:
        pool_event = self.pool.handle(event)
        if pool_event is None:
            return
        self._pool_events.append(pool_event)
        if isinstance(pool_event, ReplicaReady):
            self.loadgen.send(event="replica_ready", endpoints=msgspec.to_builtins(pool_event.endpoints))
            return
        if not self.survives or not self.pool.endpoints:
            raise pool_event.failure()
        addresses = [endpoint.address for endpoint in pool_event.endpoints]
        self.loadgen.send(event="replica_failed", addresses=addresses, cause=pool_event.cause)


def _died(event: Exit) -> RunFailed:
    return RunFailed(
        "LoadGen's process ended without a word",
        where=str(event.child.log),
        found=f"exit code {event.code}, and the last lines of its log:\n{event.child.last_lines()}",
    )
