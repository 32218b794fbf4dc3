"""Replay engine: computes nothing and answers at the pace of a timing model, to measure the harness itself.

It is part of the package because PROFILE=rehearsal uses it. Its answers are recorded ones, or filler ids of a length
that depends on the prompt only. Its runs are never results: run selection ignores them, and `submit` rejects them.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from harness_llm.config.benchmark import Sampling
from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import ACCURACY, read_accuracy_log
from harness_llm.loadgen.run_spec import SPEC
from harness_llm.protocol.counters import Counters
from harness_llm.protocol.messages import Activity
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.engines.engine import Step
from harness_llm.replicas.engines.replay_timing import Batch, Pace

# LoadGen counts no tokens of a shorter answer.
MIN_TOKENS = 2
# Answers that are not recorded consist of this id and end with the first stop token.
FILLER = 5
_HASHES = 1 << 32

Answer = npt.NDArray[np.int32]


class ReplaySpec(msgspec.Struct, frozen=True, kw_only=True):
    """Answers and speed of one replica; fields as in replay_config.

    Attributes:
        speed: divisor of every duration.
    """

    prefill_tokens_per_s: float
    step_s: float
    step_s_per_sequence: float
    output_tokens: float
    output_spread: float
    recorded: str
    speed: float

    def pace(self, llm_config: dict[str, Any]) -> Pace:
        """Return the timing model of an engine with the batch of `llm_config`."""
        seats = int(llm_config["max_num_seqs"])
        return Pace(
            prefill_s=1 / (self.prefill_tokens_per_s * self.speed) if self.prefill_tokens_per_s else 0.0,
            step_s=self.step_s / self.speed,
            sequence_s=self.step_s_per_sequence / self.speed,
            seats=seats,
            # vLLM's default for LLM().
            budget=int(llm_config.get("max_num_batched_tokens") or max(8192, seats)),
        )


class Lengths:
    """Lengths of answers in tokens: log-normal, truncated at `longest`; `mean` is after truncation."""

    def __init__(self, mean: float, spread: float, longest: int) -> None:
        """Fit the median; `spread` is the standard deviation of the logarithm, 0 for equal lengths."""
        self._spread, self._longest = spread, longest
        below, above = math.log(MIN_TOKENS), math.log(max(mean, longest)) + 10 * spread
        for _ in range(60):
            self._median = (below + above) / 2
            if self.mean() < mean:
                below = self._median
            else:
                above = self._median
        self._median = above

    def at(self, quantile: float) -> int:
        """Return the length at `quantile`."""
        deviation = NormalDist().inv_cdf(min(max(quantile, 1e-9), 1 - 1e-9)) if self._spread else 0
        return min(max(round(math.exp(self._median + self._spread * deviation)), MIN_TOKENS), self._longest)

    def mean(self) -> float:
        """Return the mean over all quantiles."""
        return sum(self.at((i + 0.5) / 200) for i in range(200)) / 200


class ReplayEngine:
    """Answers at the pace of `spec`.

    A step that is due is made immediately, and the next one begins at the time when it was due, so that delays of the
    process do not accumulate.
    """

    def __init__(self, llm_config: dict[str, Any], spec: ReplaySpec) -> None:
        self._pace = spec.pace(llm_config)
        self._spec = spec
        self._recorded = read_recorded(Path(spec.recorded)) if spec.recorded else {}
        self._stream = False
        self._batch = Batch(self._pace)
        self._answers: dict[int, Answer] = {}
        self._silent: set[int] = set()  # queries whose first token is already reported
        self._due: float | None = None
        self._counted = 0  # tokens of the batch before the last `configure`
        self._unstopped = False
        self._lengths: Lengths
        self._filler: Answer

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set length and end of further answers, and whether first tokens are reported."""
        self._stream = stream
        self._counted = self._batch.generated
        self._lengths = Lengths(self._spec.output_tokens, self._spec.output_spread, sampling.max_tokens)
        self._unstopped = not sampling.stop_token_ids
        end = FILLER if self._unstopped else sampling.stop_token_ids[0]
        self._filler = np.array([FILLER] * (sampling.max_tokens - 1) + [end], dtype=np.int32)

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:  # noqa: ARG002 - same for all kinds
        """Add a query."""
        answer = self._answer(prompt[: len(prompt) - reported])
        if reported:
            self._silent.add(query)
        self._answers[query] = answer
        self._batch.add(query, len(prompt), len(answer) - reported)

    def _answer(self, prompt: list[int]) -> Answer:
        if self._unstopped:  # as in every engine, up to max_tokens
            return self._filler
        key = hash(tuple(prompt))  # of integers: equal in every process
        if (recorded := self._recorded.get(key)) is not None:
            return recorded
        if self._recorded:
            raise ValueError("no answer to this prompt in the recorded run")
        return self._filler[-self._lengths.at(key % _HASHES / _HASHES) :]

    @property
    def due(self) -> float | None:
        """End of the current step on the clock of time.perf_counter; None without queries."""
        if self._due is None and self._batch.unfinished:
            self._due = time.perf_counter() + self._batch.begin()
        return self._due

    def step(self) -> Step:
        """Wait for the end of the current step, and begin the next."""
        due = self.due
        if due is None:
            return Step()
        if (early := due - time.perf_counter()) > 0:  # sleep(0) takes 80 µs
            time.sleep(early)
        started, finished = self._batch.end()
        self._due = due + self._batch.begin() if self._batch.unfinished else None
        return self._outputs(started, finished)

    def _outputs(self, started: Sequence[int], finished: Sequence[int]) -> Step:
        answers, silent = self._answers, self._silent
        step = Step()
        if self._stream:
            step.first = [(query, int(answers[query][0])) for query in started if query not in silent]
        step.finished = [(query, answers.pop(query)) for query in finished]
        if silent:
            silent.difference_update(finished)
        return step

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""
        return bool(self._batch.unfinished)

    @property
    def arrivals(self) -> None:
        """None: `step` waits."""

    @property
    def generated(self) -> int:
        """Tokens of all steps since `configure`."""
        return self._batch.generated - self._counted

    def abort(self) -> None:
        """Abort all queries."""
        self._batch, self._counted = Batch(self._pace), 0
        self._answers.clear()
        self._silent.clear()
        self._due = None

    def activity(self) -> Activity:
        """Return sequences and tokens of the timing model."""
        batch = self._batch
        return Activity(batch.generated - self._counted, batch.seated, max(batch.unfinished - batch.seated, 0))

    def kv_cache(self) -> None:
        """Return None: the timing model assumes enough memory."""

    def counters(self) -> Counters:
        """Return no counters: no cache and no speculation."""
        return {}


class _Recorded(msgspec.Struct):
    """The field of a RunSpec that is needed; other fields may be of another version."""

    store: str


def read_recorded(run: Path) -> dict[int, Answer]:
    """Return the answers of an accuracy run, by the hash of their prompts.

    Raises:
        ConfigError: `run` is not the directory of an accuracy run.
        EnvironmentMissing: missing data set.
    """
    try:
        store = open_store(Path(msgspec.json.decode((run / SPEC).read_bytes(), type=_Recorded).store))
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            "no recorded run",
            where=f"replay_config.recorded: {run}",
            expected="the directory of an accuracy run",
            found=str(error),
        ) from error
    answers = read_accuracy_log(run / ACCURACY)
    return {hash(tuple(store.prompt(answer.qsl_idx).tolist())): answer.ids for answer in answers}
