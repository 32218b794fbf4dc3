"""Interface of engines: add queries, make steps, read first tokens and whole answers."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from harness_llm.config.benchmark import Sampling
from harness_llm.config.engines import ENGINES
from harness_llm.protocol.counters import Counters
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.messages import Activity
from harness_llm.protocol.token_store import Ids
from harness_llm.replicas.engines.cuda import prepare_cuda


@dataclass
class Step:
    """Outputs of one engine step, as (query, ids) pairs."""

    first: list[tuple[int, int]] = field(default_factory=list)
    finished: list[tuple[int, Ids]] = field(default_factory=list)


class Engine(Protocol):
    """An engine over one tensor-parallel group, driven by `add` and `step`."""

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set the sampling of further queries, and whether first tokens are reported."""

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        """Add a query, of a sample of `kind`; raise ValueError if the prompt cannot be served.

        The last `reported` ids of `prompt` are the start of the answer: a failed replica generated them and they are
        reported. They are not reported again, and count against the limits of the answer.
        """

    def step(self) -> Step:
        """Advance all queries by one scheduling step; raise ValueError if an answer is incomplete or failed."""

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""

    @property
    def arrivals(self) -> int | None:
        """A descriptor that is readable while `step` has outputs; None if `step` computes them."""

    def kv_cache(self) -> KvCache | None:
        """Return capacity of the KV cache and preemptions so far; None if the engine reports none.

        Raises:
            ValueError: no answer from the server.
        """

    @property
    def generated(self) -> int:
        """Tokens generated since `configure`; read by other threads.

        Engines that receive only whole answers count the tokens of an answer when it is finished.
        """

    def activity(self) -> Activity:
        """Return the engine's activity without waiting for it; from any thread."""

    def abort(self) -> None:
        """Abort all queries."""

    def counters(self) -> Counters | None:
        """Return the engine's counters; empty if its arguments exclude caching and speculation, None if unknown.

        Raises:
            ValueError: no answer from the server.
        """


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Server of an engine over HTTP.

    Attributes:
        kind: one of servers.yaml.
        url: of a running server; if empty, a server is started, and stopped with the replica.
        command: that starts it, instead of the kind's own.
        connections: concurrent requests; further queries wait.
        attempts: number of times a query is sent while no byte of an answer has arrived.
        timeout_s: time without data after which an answer has failed.
        log: file for the output of a started server.
    """

    kind: str
    url: str
    command: str
    connections: int
    attempts: int
    timeout_s: float
    log: str


def build_engine(
    name: str,
    checkpoint: str,
    llm_config: dict[str, Any],
    server: ServerSpec | None = None,
    workers: str = "",
    *,
    traces: str = "",
) -> Engine:
    """Load engine `name`; takes seconds to minutes.

    Args:
        workers: Ray placement group of its workers, if they are in other processes.
        traces: folder for traces of vLLM's profiler; empty for none.

    Raises:
        HarnessError: no GPU for the CUDA build; no server, or a server without token ids.
    """
    if not ENGINES[name].serves:
        prepare_cuda()
    if name == "vllm":
        from harness_llm.replicas.engines.vllm import load_engine  # noqa: PLC0415 - loads torch

        return load_engine(checkpoint, llm_config, workers, traces)
    if name == "transformers":
        from harness_llm.replicas.engines.transformers import TransformersEngine  # noqa: PLC0415 - loads torch

        return TransformersEngine(checkpoint, llm_config)
    if ENGINES[name].serves and server:
        from harness_llm.replicas.engines.openai import OpenAIEngine  # noqa: PLC0415 - loads aiohttp

        return OpenAIEngine(checkpoint, llm_config, server)
    raise ValueError(f"unknown engine {name}")
