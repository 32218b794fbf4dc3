"""Engines behind one protocol: queries go in, first tokens and whole answers come out."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from harness_llm.config.benchmark import Sampling
from harness_llm.config.engines import ENGINES
from harness_llm.protocol.counters import Counters
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.token_store import Ids
from harness_llm.replicas.engines.cuda import prepare_cuda


@dataclass
class Step:
    """What one engine step brought, as (query, ids) pairs."""

    first: list[tuple[int, int]] = field(default_factory=list)
    finished: list[tuple[int, Ids]] = field(default_factory=list)


class Engine(Protocol):
    """A loop of add and step over one tensor-parallel group."""

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set how the next queries are sampled, and whether first tokens are reported."""

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        """Take in one query of a `kind` of samples; raises ValueError when the prompt cannot be served.

        The last `reported` ids of `prompt` are the first of the answer: another engine has generated them and they
        are reported, so that they are not again; they count against the limits of the answer, and begin it.
        """

    def step(self) -> Step:
        """Advance all queries by one scheduling step; raises ValueError where an answer was cut or failed."""

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""

    @property
    def arrivals(self) -> int | None:
        """A descriptor that is readable while `step` has news; None where it is `step` that computes."""

    def kv_cache(self) -> KvCache | None:
        """Capacity of the KV cache and preemptions so far; None where the engine reports none.

        Raises:
            ValueError: the engine cannot be asked.
        """

    @property
    def generated(self) -> int:
        """Tokens generated since `configure`, as far as known; read by other threads.

        Engines that receive only whole answers count the tokens of an answer when it is finished.
        """

    def abort(self) -> None:
        """Drop all queries."""

    def counters(self) -> Counters | None:
        """The engine's own counts; empty where its arguments rule out any, None where it cannot tell.

        Raises:
            ValueError: the engine cannot be asked.
        """


class ServerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine over HTTP finds its server.

    Attributes:
        kind: one of servers.yaml.
        url: of a server that runs already; without one, a server is started, and ended with the replica.
        command: what starts it, in place of the kind's own.
        connections: requests under way at once; further queries wait.
        attempts: how often a query is sent while no byte of an answer has come.
        timeout_s: silence after which an answer has failed.
        log: where the output of a server that is started goes.
    """

    kind: str
    url: str
    command: str
    connections: int
    attempts: int
    timeout_s: float
    log: str


def build_engine(
    name: str, checkpoint: str, llm_config: dict[str, Any], server: ServerSpec | None = None, workers: str = ""
) -> Engine:
    """Load the engine called `name`; takes seconds to minutes.

    Args:
        workers: the Ray placement group for its workers, where they are not in this process.

    Raises:
        HarnessError: there is no GPU for the CUDA build; the server of an engine over HTTP cannot be had, or gives no
            token ids.
    """
    if not ENGINES[name].serves:
        prepare_cuda()
    if name == "vllm":
        from harness_llm.replicas.engines.vllm import load_engine  # noqa: PLC0415 - loads torch

        return load_engine(checkpoint, llm_config, workers)
    if name == "transformers":
        from harness_llm.replicas.engines.transformers import TransformersEngine  # noqa: PLC0415 - loads torch

        return TransformersEngine(checkpoint, llm_config)
    if ENGINES[name].serves and server:
        from harness_llm.replicas.engines.openai import OpenAIEngine  # noqa: PLC0415 - loads aiohttp

        return OpenAIEngine(checkpoint, llm_config, server)
    raise ValueError(f"no engine {name}")
