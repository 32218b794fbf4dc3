"""A replica pool: what stands in each place of it, and what happens when that ends."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from harness_llm.errors import HarnessError, RunFailed, rebuild
from harness_llm.protocol.child_processes import Child, Exit, Message, watch
from harness_llm.protocol.messages import Endpoint
from harness_llm.replicas.pool_folder import PoolFolder
from harness_llm.replicas.restart import worth_another

Start = Callable[[int], Child]
"""Starts the process of a place; the argument says how many there have been before."""


@dataclass(frozen=True)
class Lost:
    """The process of a place has ended.

    Attributes:
        endpoints: of the replicas that it had; none where it was not ready.
        last_lines: of its log.
        error: what it said before it ended.
    """

    name: str
    endpoints: tuple[Endpoint, ...]
    cause: str
    log: Path
    last_lines: str
    error: HarnessError | None = None

    def failure(self) -> HarnessError:
        """The error for a run that cannot go on without it."""
        return self.error or RunFailed(
            f"{self.name} ended",
            where=str(self.log),
            found=f"{self.cause}, and the last lines of its log:\n{self.last_lines}",
        )


@dataclass(frozen=True)
class Joined:
    """The process of a place is ready."""

    name: str
    endpoints: tuple[Endpoint, ...]


News = Lost | Joined


def describe(news: News) -> str:
    """One line."""
    return f"{news.name} is lost: {news.cause}" if isinstance(news, Lost) else f"{news.name} is back"


@dataclass
class _Place:
    """Where a process of replicas stands; times in seconds of the monotonic clock.

    Attributes:
        endpoints: of the process that stands there; none until it is ready.
        lives: how long those before it served.
        cause: why it ends, if that is known before it does.
    """

    name: str
    start: Start
    child: Child | None = None
    endpoints: tuple[Endpoint, ...] = ()
    began: float = 0.0
    ready: float = 0.0
    lives: list[float] = field(default_factory=list)
    cause: str = ""
    error: HarnessError | None = None

    def begin(self) -> None:
        self.endpoints, self.cause, self.error = (), "", None
        self.began = time.monotonic()
        self.child = self.start(len(self.lives))

    def condemn(self, cause: str) -> None:
        self.cause = self.cause or cause
        if self.child:
            self.child.process.kill()  # `end` looks after the rest of its session

    def end(self, event: Exit) -> Lost:
        lost = Lost(
            self.name,
            self.endpoints,
            self.cause or f"exit code {event.code}",
            event.child.log,
            event.child.last_lines(),
            self.error,
        )
        self.lives.append(time.monotonic() - self.ready if self.endpoints else 0.0)
        event.child.stop(patience_s=0)
        self.child, self.endpoints = None, ()
        return lost


class ReplicaPool:
    """Replicas, each in a place of its own, started again where that is worth it.

    Attributes:
        folder: for sockets and the like; goes with the replica pool.
        keys: the file with those of LoadGen's process.
        loadgen_cpus: cores left to LoadGen's process.
    """

    def __init__(self, folder: PoolFolder, loadgen_cpus: list[int], startup_timeout_s: float) -> None:
        """Have no replicas yet."""
        self.folder = folder.path
        self.keys = folder.path / "client.keys"
        self.loadgen_cpus = loadgen_cpus
        self._own = folder
        self._startup_timeout_s = startup_timeout_s
        self._places: list[_Place] = []
        self._last: dict[str, Lost] = {}

    @property
    def replicas(self) -> list[Child]:
        """The processes that run."""
        return [place.child for place in self._places if place.child]

    @property
    def endpoints(self) -> list[Endpoint]:
        """Of the replicas that are ready."""
        return [endpoint for place in self._places for endpoint in place.endpoints]

    def start(self, places: Mapping[str, Start], tell: Callable[[str], None]) -> None:
        """Fill the places side by side; returns once all are ready.

        Raises:
            RunFailed: one ended or was not ready in time; with its last log lines.
            HarnessError: what a replica says of its engine that cannot be loaded.
        """
        self._places = [_Place(name, start) for name, start in places.items()]
        for place in self._places:
            place.begin()
        for news in self._until_whole(tell, again=False):
            if isinstance(news, Lost):
                raise news.failure()

    def mend(self, tell: Callable[[str], None]) -> None:
        """Wait for the replicas that are being started again.

        Raises:
            RunFailed: one has ended again and again, and is given up.
        """
        for news in self._until_whole(tell, again=True):
            tell(describe(news))
        for place in self._places:
            if not place.child:
                failure = self._last[place.name].failure()
                failure.hint = failure.hint or "once it can be started: the same command goes on with what is missing"
                raise failure

    def _until_whole(self, tell: Callable[[str], None], *, again: bool) -> Iterator[News]:
        """What happens until no place is being filled."""
        timeout_s = 0.0  # what has happened before
        while True:
            for event in watch(self.replicas, timeout_s):
                if isinstance(event, Message):
                    tell(f"{event.child.name} {event.body['event']}")
                if news := self.take(event, again=again):
                    yield news
            pending = [place for place in self._places if place.child and not place.endpoints]
            if not pending:
                return
            for place in pending:
                if time.monotonic() - place.began > self._startup_timeout_s:
                    place.condemn(f"not ready in {self._startup_timeout_s:g} s (harness_config.startup_timeout_s)")
            timeout_s = 1.0

    def take(self, event: Message | Exit, *, again: bool = True) -> News | None:
        """What an event of one of `replicas` means; one that has ended is started `again` if that is worth it."""
        place = next(place for place in self._places if place.child is event.child)
        if isinstance(event, Exit):
            lost = self._last[place.name] = place.end(event)
            if again and worth_another(place.lives):
                place.begin()
            return lost
        if event.body["event"] == "ready":
            place.ready = time.monotonic()
            place.endpoints = tuple(msgspec.convert(event.body["endpoints"], list[Endpoint]))
            return Joined(place.name, place.endpoints)
        if event.body["event"] == "failed":
            place.error = rebuild(event.body)
            place.cause = " ".join(str(place.error).split())
        elif event.body["event"] == "raised":
            place.cause = f"it raised {event.body['error']}"
        return None

    def condemn(self, address: str, cause: str) -> None:
        """End the process that has the replica at `address`, if it is there: it may never wake up again."""
        for place in self._places:
            if address in [endpoint.address for endpoint in place.endpoints]:
                place.condemn(cause)

    def stop(self) -> None:
        """End every replica; nothing is left running and no file is left behind."""
        for child in self.replicas:
            child.stop()
        self._own.remove()
