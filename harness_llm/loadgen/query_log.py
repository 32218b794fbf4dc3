"""Query log: times of every query of a run, collected per batch and joined after the run."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.replica_client import Issued, Sent
from harness_llm.protocol.messages import Answer
from harness_llm.protocol.record_files import Labels, Values

Times = npt.NDArray[np.float64]
_Batch = tuple[Sequence[int], float, Sequence[int]]


class _Events:
    """Events of one kind, as batches of queries at one time with a value each.

    The lists of the caller are kept as they are, about 40 bytes per event: copying their items into arrays during the
    run takes ten times as long as appending them. Appending is atomic, so another thread may read.
    """

    def __init__(self) -> None:
        self._batches: list[_Batch] = []

    def add(self, queries: Sequence[int], at: float, values: Sequence[int] = ()) -> None:
        self._batches.append((queries, at, values))

    def read(self) -> tuple[npt.NDArray[np.uint64], Times, npt.NDArray[np.int64]]:
        """Return query, time and value of each event."""
        batches = self._batches.copy()
        counts = np.array([len(queries) for queries, _, _ in batches], np.int64)
        queries = np.fromiter(chain.from_iterable(batch[0] for batch in batches), np.uint64, counts.sum())
        values = np.fromiter(chain.from_iterable(batch[2] for batch in batches), np.int64)
        return queries, np.repeat(np.array([at for _, at, _ in batches], np.float64), counts), values


class QueryLog:
    """Events of all queries; times in seconds of one clock. LoadGen's query ids are unique addresses."""

    def __init__(self) -> None:
        self._issued, self._sent, self._first, self._finished = _Events(), _Events(), _Events(), _Events()
        self._replicas: dict[str, int] = {}

    def sent(self, issued: Iterable[Issued], sent: Iterable[Sent]) -> None:
        """Record issued queries, and messages to replicas."""
        for batch in issued:
            self._issued.add(batch.queries, batch.at, batch.samples)
        for message in sent:
            number = self._replicas.setdefault(message.replica, len(self._replicas))
            self._sent.add(message.queries, message.at, [number] * len(message.queries))

    def first(self, answers: Iterable[Answer], at: float) -> None:
        """Record first tokens that were reported to LoadGen."""
        self._first.add([answer.query for answer in answers], at)

    def finish(self, queries: Sequence[int], tokens: Sequence[int], at: float) -> None:
        """Record answers that were reported to LoadGen, with their numbers of tokens."""
        self._finished.add(queries, at, tokens)

    def columns(self, start: float, prompt_tokens: npt.NDArray[np.int64]) -> dict[str, Values]:
        """Return the columns of `QUERIES`: times since `start`, NaN for what did not happen.

        Args:
            prompt_tokens: by sample.
        """
        # The SUT thread may still add events: those read last include the queries of those read before.
        finished, finished_at, tokens = self._finished.read()
        first, first_at, _ = self._first.read()
        sent, sent_at, numbers = self._sent.read()
        queries, issued, samples = self._issued.read()
        rows = _Rows(queries)
        sends = np.bincount(rows.of(sent), minlength=len(queries))
        return {
            "sample": samples,
            "replica": Labels(list(self._replicas), rows.last(sent, numbers, -1)),
            "issue_s": issued - start,
            "send_s": rows.last(sent[::-1], sent_at[::-1] - start),
            "first_token_s": rows.last(first, first_at - start),
            "completion_s": rows.last(finished, finished_at - start),
            "prompt_tokens": prompt_tokens[samples],
            "output_tokens": rows.last(finished, tokens),
            "requeues": np.maximum(sends - 1, 0),
        }


class _Rows:
    """Rows of queries, in order of issue."""

    def __init__(self, queries: npt.NDArray[np.uint64]) -> None:
        self._queries, self._order = queries, np.argsort(queries)

    def of(self, queries: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
        return self._order[np.searchsorted(self._queries, queries, sorter=self._order)]

    def last(self, queries: npt.NDArray[np.uint64], values: npt.NDArray[Any], missing: float = np.nan) -> Any:
        """Return a column with the last of the `values` of each query."""
        column = np.full(len(self._queries), missing, dtype=np.result_type(values, type(missing)))
        column[self.of(queries)] = values
        return column
