"""The replicas of a run, as the probe uses them."""

import time

import numpy as np
import numpy.typing as npt

from harness_llm.config.benchmark import Sampling
from harness_llm.loadgen.probe import Count, Prompts, Replica, Unmeasured
from harness_llm.loadgen.replica_client import ReplicaClient

_POLL_MS = 20


class _InMemory:
    def __init__(self, prompts: Prompts) -> None:
        self._prompts = prompts

    def prompt(self, index: int) -> npt.NDArray[np.int32]:
        return self._prompts[index]

    def lengths(self) -> npt.NDArray[np.int64]:
        return np.array([len(prompt) for prompt in self._prompts])

    def kinds(self) -> list[str]:
        return []


class ClientPool:
    """The replicas of a replica client; implements `probe.Pool`."""

    def __init__(self, replica_client: ReplicaClient, sampling: Sampling, tokens: int) -> None:
        """Every sequence generates `tokens` tokens with `sampling`, without stop tokens."""
        self._replica_client = replica_client
        self._sampling = sampling.changed(
            {"min_tokens": 1, "max_tokens": tokens, "stop_token_ids": (), "stop_sequences": {}}
        )
        self._addresses: list[str] = []
        self._distinct = 1

    def now(self) -> float:
        """Return seconds of the performance counter."""
        return time.perf_counter()

    def begin(self, prompts: Prompts) -> None:
        """Abort all sequences and serve `prompts`; stream, because first tokens show which prompts are computed."""
        self._replica_client.attach("probe", self._sampling, _InMemory(prompts), stream=True)
        self._distinct = len(prompts)
        self._addresses = self._addresses or list(self._replica_client.query_table.loads)
        self._require_same()

    def issue(self, prompts: range) -> None:
        """Issue prompts; the next poll sends them in equal shares."""
        self._replica_client.issue(prompts, [prompt % self._distinct for prompt in prompts])

    def poll(self) -> None:
        """Send what is issued and wait for messages."""
        self._replica_client.poll(_POLL_MS)
        self._require_same()

    def replicas(self) -> list[Replica]:
        """Return the load of each replica."""
        query_table = self._replica_client.query_table
        return [
            Replica(load.running, load.unstarted_tokens, query_table.prompt_tokens(address))
            for address, load in query_table.loads.items()
        ]

    def counts(self) -> list[Count]:
        """Request the counts of every replica."""
        counted = self._replica_client.count()
        self._require_same()
        return [Count(counted[address].generated, counted[address].at) for address in self._addresses]

    def _require_same(self) -> None:
        if list(self._replica_client.query_table.loads) != self._addresses:
            raise Unmeasured("a replica failed or joined during the probe")
