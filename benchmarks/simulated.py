"""A replica in simulated time; its step model includes reading of weights and KV cache. For benchmarks/probe.py."""

from dataclasses import dataclass

from harness_llm.loadgen.probe import Count, Prompts, Replica
from harness_llm.replicas.engines.replay_timing import Batch, Pace

IDLE_S = 0.05


@dataclass(frozen=True)
class Engine:
    """Step model of a replica, in seconds.

    Attributes:
        weights_s: to read the weights once.
        token_s: to compute a prompt or output token.
        context_s: to read the KV cache of a token.
        overlapped: whether computing overlaps with reading of weights.
    """

    weights_s: float
    token_s: float
    context_s: float
    batch: int
    budget: int
    overlapped: bool = False

    def step_s(self, tokens: float, context: float) -> float:
        """Return the duration of a step that computes `tokens` and reads `context` tokens of KV cache."""
        compute = self.token_s * tokens
        linear = max(self.weights_s, compute) if self.overlapped else self.weights_s + compute
        return linear + self.context_s * context


class Simulation:
    """One replica in simulated time; queries are numbered by the caller.

    Attributes:
        generated: tokens since the last abort; `stepped` is the time of the last one.
        prompts: prompt tokens of unfinished queries; `waiting` are those of queries without a first token.
    """

    def __init__(self, engine: Engine) -> None:
        self.now = self.stepped = 0.0
        self._engine = engine
        self._due: float | None = None
        self.abort()

    def abort(self) -> None:
        """Abort all queries at the end of the current step."""
        self.now = self._due or self.now
        # With this pace, seconds of a step are its prompt tokens plus 1.
        self._batch = Batch(Pace(1, 1, 0, self._engine.batch, self._engine.budget))
        self._lengths: dict[int, tuple[int, int]] = {}
        self._context = self.generated = self.prompts = self.waiting = 0
        self._due = None

    @property
    def unfinished(self) -> int:
        """Unfinished queries."""
        return len(self._lengths)

    def add(self, query: int, prompt: int, answer: int) -> None:
        """Add a query; lengths in tokens."""
        self._lengths[query] = prompt, answer
        self.prompts += prompt
        self.waiting += prompt
        self._batch.add(query, prompt, answer)

    def advance(self, idle_s: float) -> list[int]:
        """Advance to the end of the current step, or by `idle_s`; return the finished queries."""
        if not self._batch.unfinished:
            self.now += idle_s
            return []
        if self._due is None:
            self._due = self.now + self._begin()
        self.now, self._due = self._due, None
        return self._end()

    def _begin(self) -> float:
        prefilled = self._batch.begin() - 1
        return self._engine.step_s(self._batch.running + prefilled, self._context)

    def _end(self) -> list[int]:
        running = self._batch.running
        started, finished = self._batch.end()
        self.generated += running + len(started)
        self.stepped = self.now
        self._context += running
        for query in started:
            prompt, _ = self._lengths[query]
            self.waiting -= prompt
            self._context += prompt + 1
        for query in finished:
            prompt, answer = self._lengths.pop(query)
            self.prompts -= prompt
            self._context -= prompt + answer
        return finished


class SimulatedPool:
    """One simulated replica; implements `probe.Pool`."""

    def __init__(self, engine: Engine, tokens: int) -> None:
        """Every sequence generates `tokens` tokens."""
        self._replica = Simulation(engine)
        self._tokens = tokens
        self._lengths: list[int] = []

    def now(self) -> float:
        """Return simulated seconds."""
        return self._replica.now

    def begin(self, prompts: Prompts) -> None:
        """Abort all sequences and serve `prompts`."""
        self._replica.abort()
        self._lengths = [len(prompt) for prompt in prompts]

    def issue(self, prompts: range) -> None:
        """Issue prompts."""
        for prompt in prompts:
            self._replica.add(prompt, self._lengths[prompt % len(self._lengths)], self._tokens)

    def poll(self) -> None:
        """Advance to the end of the current step."""
        self._replica.advance(IDLE_S)

    def replicas(self) -> list[Replica]:
        """Return the load of the replica."""
        return [Replica(self._replica.unfinished, self._replica.waiting, self._replica.prompts)]

    def counts(self) -> list[Count]:
        """Return the generated tokens."""
        return [Count(self._replica.generated, self._replica.stepped)]

    def end(self) -> float:
        """Abort all sequences at the end of a step; return the seconds until then."""
        before = self._replica.now
        self.poll()
        self._replica.abort()
        return self._replica.now - before
