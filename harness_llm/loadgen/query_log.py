"""Query log: times of every query of a run, collected per batch in typed arrays and joined after the run."""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.replica_client import Issued, Sent
from harness_llm.protocol.messages import Answer
from harness_llm.protocol.record_files import Labels, Values

Times = npt.NDArray[np.float64]


class _Events:
    """Events of one kind, as batches of queries at one time with a value each.

    An array grows by reallocation, mostly without copying, and appends a few items in a third of numpy's time.
    """

    def __init__(self) -> None:
        self._queries, self._values = array("Q"), array("q")
        self._times, self._counts = array("d"), array("q")

    def add(self, queries: Sequence[int], at: float, values: Sequence[int] = ()) -> None:
        self._queries.extend(queries)
        if values:
            self._values.extend(values)
        self._times.append(at)
        self._counts.append(len(queries))  # last: the batch is complete, as another thread may read

    def read(self) -> tuple[npt.NDArray[np.uint64], Times, npt.NDArray[np.int64]]:
        """Return query, time and value of each event; copies, because an exported array cannot grow."""
        counts = np.array(self._counts)
        total = int(counts.sum())
        times = np.repeat(np.array(self._times)[: len(counts)], counts)
        return np.array(self._queries)[:total], times, np.array(self._values)[:total]

    def repeated(self, values: "array[int]") -> npt.NDArray[np.int64]:
        """Return the value of each event, from `values` of the batches."""
        counts = np.array(self._counts)
        return np.repeat(np.array(values)[: len(counts)], counts)


class QueryLog:
    """Events of all queries; times in seconds of one clock. LoadGen's query ids are unique addresses."""

    def __init__(self) -> None:
        self._issued, self._sent, self._first, self._finished = _Events(), _Events(), _Events(), _Events()
        self._replicas: dict[str, int] = {}
        self._receivers = array("q")  # replica of each message

    def sent(self, issued: Iterable[Issued], sent: Iterable[Sent]) -> None:
        """Record issued queries, and messages to replicas."""
        for batch in issued:
            self._issued.add(batch.queries, batch.at, batch.samples)
        for message in sent:
            number = self._replicas.setdefault(message.replica, len(self._replicas))
            self._receivers.append(number)
            self._sent.add(message.queries, message.at)

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
        queries, issued, samples = self._issued.read()
        rows = _Rows(queries)
        sent, sent_at, _ = self._sent.read()
        numbers = self._sent.repeated(self._receivers)
        first, first_at, _ = self._first.read()
        finished, finished_at, tokens = self._finished.read()
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
