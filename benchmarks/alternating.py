"""LoadGen's process with records in half of its time: their cost within one run.

Equal runs differ by more than records cost; neighbouring blocks of time in one run differ less. Of each two blocks one
is recorded, in random order. Run as `python -m benchmarks.alternating SPEC.json` by the pipeline.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.query_log import QueryLog
from harness_llm.loadgen.recorder import Recorder, RunLog
from harness_llm.loadgen.replica_client import Issued, Sent
from harness_llm.loadgen.replica_log import ReplicaLog
from harness_llm.loadgen.run_spec import RunSpec
from harness_llm.protocol.messages import Answer

BLOCKS = "blocks.json"
BLOCK_S = 0.2
# Pairs in which the replicas start, or the last queries end.
_START, _END = 3, 1


class AlternatingLog(QueryLog):
    """A query log that keeps the events of the recorded blocks only, and counts the answers of all."""

    def __init__(self) -> None:
        """Start with the first answer."""
        super().__init__()
        self._random = np.random.default_rng(0)
        self._began: float | None = None
        self._recorded: list[bool] = []
        self._answered: list[int] = []

    def sent(self, issued: Iterable[Issued], sent: Iterable[Sent]) -> None:
        """Record messages in recorded blocks."""
        if self._recorded and self._recorded[-1]:
            super().sent(issued, sent)

    def first(self, answers: Iterable[Answer], at: float) -> None:
        """Record first tokens in recorded blocks."""
        if self._recorded and self._recorded[-1]:
            super().first(answers, at)

    def finish(self, queries: Sequence[int], tokens: Sequence[int], at: float) -> None:
        """Count answers, and record them in recorded blocks."""
        if self._began is None:
            self._began = at
        while len(self._answered) * BLOCK_S <= at - self._began:
            self._next_block()
        self._answered[-1] += len(queries)
        if self._recorded[-1]:
            super().finish(queries, tokens, at)

    def _next_block(self) -> None:
        second = len(self._recorded) % 2
        self._recorded.append(not self._recorded[-1] if second else bool(self._random.integers(2)))
        self._answered.append(0)

    def pairs(self) -> list[tuple[int, int]]:
        """Answers of each pair of blocks: with records and without."""
        blocks = list(zip(self._recorded, self._answered, strict=True))
        pairs = zip(blocks[::2], blocks[1::2], strict=False)
        counts = [(first, second) if recorded else (second, first) for (recorded, first), (_, second) in pairs]
        return counts[_START : len(counts) - _END]


class AlternatingRecorder(Recorder):
    """Writes the answers of each pair of blocks in place of records."""

    def __init__(self, spec: RunSpec) -> None:
        """Create the log of the run of `spec`."""
        super().__init__(spec)
        self._file, self._queries = Path(spec.output) / BLOCKS, AlternatingLog()

    def start(self, prompt_tokens: npt.NDArray[np.int64]) -> RunLog:
        """Set time 0 and return the log."""
        super().start(prompt_tokens)
        return RunLog(self._queries, ReplicaLog())

    def write(self) -> None:
        """Write the pairs."""
        self._file.write_text(json.dumps(self._queries.pairs()))


if __name__ == "__main__":
    from harness_llm.loadgen.process import main  # imports LoadGen, which only the run's processes have

    main(AlternatingRecorder)
