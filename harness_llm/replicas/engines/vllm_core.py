"""Outputs of vLLM's engine core, in this process or in its own.

`EngineCoreClient.get_output` waits for the next step in both cases. With VLLM_ENABLE_V1_MULTIPROCESSING=1, vLLM's
default, the client is a SyncMPClient: the core steps by itself, and this process can wait for outputs and new queries
at the same time.
"""

import threading
from typing import Protocol

from vllm.v1.engine import EngineCoreOutputs
from vllm.v1.engine.core_client import EngineCoreClient, SyncMPClient
from vllm.v1.engine.exceptions import EngineDeadError

from harness_llm.protocol.mailbox import Mailbox


class EngineCore(Protocol):
    """Source of engine-core outputs."""

    @property
    def arrivals(self) -> int | None:
        """A descriptor that is readable while there are outputs; None if `take` computes them."""

    def take(self) -> list[EngineCoreOutputs]:
        """Return outputs since the last call; raise RuntimeError if the core's process has exited."""


def engine_core(client: EngineCoreClient) -> EngineCore:
    """Return the source of outputs for a client of LLMEngine."""
    return OwnProcess(client) if isinstance(client, SyncMPClient) else InProcess(client)


class InProcess:
    """An engine core in this process: `take` makes a step."""

    arrivals: None = None

    def __init__(self, client: EngineCoreClient) -> None:
        self._client = client

    def take(self) -> list[EngineCoreOutputs]:
        """Make one step."""
        return [self._client.get_output()]


class OwnProcess:
    """An engine core in its own process: a thread moves its outputs into a mailbox as they arrive."""

    def __init__(self, client: SyncMPClient) -> None:
        """Start receiving outputs."""
        self._client = client
        self._mailbox: Mailbox[EngineCoreOutputs | Exception] = Mailbox()
        self.arrivals = self._mailbox.arrivals
        for target in (self._receive, self._watch):
            threading.Thread(target=target, name=f"engine core: {target.__name__}", daemon=True).start()

    def _receive(self) -> None:
        try:
            while True:
                self._mailbox.put(self._client.get_output())
        except Exception as error:  # noqa: BLE001 - EngineDeadError, or a decoding error: `take` raises it
            self._mailbox.put(error)

    def _watch(self) -> None:
        """Make `get_output` raise when the core has exited.

        The client's receiving thread ends with the core, but queues an error only if the core sent a last message:
        after SIGKILL, `get_output` would wait forever.
        """
        self._client.output_queue_thread.join()
        self._client.outputs_queue.put_nowait(EngineDeadError())

    def take(self) -> list[EngineCoreOutputs]:
        """Return outputs that have arrived."""
        taken = self._mailbox.take()
        if errors := [error for error in taken if isinstance(error, Exception)]:
            raise RuntimeError(f"vLLM's engine core exited: {self._cause()}") from errors[0]
        return [outputs for outputs in taken if not isinstance(outputs, Exception)]

    def _cause(self) -> str:
        manager = self._client.resources.engine_manager
        codes = manager.finished_procs() if manager else {}
        exits = ", ".join(f"{name} with exit code {code}" for name, code in codes.items())
        return f"{exits or 'no exit code yet'}; its log is above"
