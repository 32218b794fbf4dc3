"""Start and stop of an engine's profiler by messages of the parent process."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from harness_llm.protocol.mailbox import Mailbox

PROFILE, PROFILED = "profile", "profiled"
"""Events: of the parent, to start or stop (`on`); of the replica, after it has done so."""


@runtime_checkable
class Profilable(Protocol):
    """An engine with a profiler."""

    def profile(self, *, on: bool) -> None:
        """Start the profiler, or stop it and write the trace, which takes seconds to minutes."""


class ProfileControl:
    """Passes the parent's messages to the engine, in the thread that steps it.

    Attributes:
        arrivals: a descriptor that is readable while there are messages.
    """

    def __init__(self, engine: Profilable, messages: Mailbox[dict[str, Any]], send: Callable[..., None]) -> None:
        """Take `messages` of the parent; `send` sends it a message."""
        self._engine, self._messages, self._send = engine, messages, send
        self.arrivals = messages.arrivals

    def take(self) -> None:
        """Process the messages that have arrived."""
        for message in self._messages.take():
            if message["event"] == PROFILE:
                self._engine.profile(on=message["on"])
                self._send(event=PROFILED, on=message["on"])
