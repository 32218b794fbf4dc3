"""Replica log: heartbeats of the replicas during a run, in one typed array."""

from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from harness_llm.loadgen.replica_client import Beat
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.record_files import Values, labels

Rows = npt.NDArray[Any]

_FIELDS = (
    "start",
    "read",
    "at",
    "in_flight",
    "steps",
    "generated",
    "running",
    "waiting",
    "kv_cache_use",
    "preemptions",
)


class ReplicaLog:
    """Heartbeats by start of a replica: each start has its own endpoint, and its counts begin at 0."""

    def __init__(self) -> None:
        self._starts: dict[Endpoint, int] = {}
        self._rows = array("d")

    def add(self, heartbeats: Iterable[Beat]) -> None:
        """Record heartbeats."""
        for endpoint, heartbeat, in_flight, at in heartbeats:
            activity = heartbeat.activity
            reported = (activity.running, activity.waiting, activity.kv_cache_use, activity.preemptions)
            start = self._starts.setdefault(endpoint, len(self._starts))
            # Without a known batch, the steps are those of the replica's loop: arrivals of outputs, or whole batches.
            steps = np.nan if activity.running is None else heartbeat.steps
            self._rows.extend((start, at, heartbeat.at, in_flight, steps, activity.generated))
            self._rows.extend(np.nan if value is None else value for value in reported)

    def columns(self, start: float) -> dict[str, Values]:
        """Return the columns of `REPLICAS`: times since `start`, NaN for what an engine does not report."""
        whole = len(self._rows) // len(_FIELDS)
        rows = np.array(self._rows)[: whole * len(_FIELDS)].reshape(whole, len(_FIELDS))
        rows = rows[np.argsort(rows[:, 0], kind="stable")]  # by start, each in order of time
        fields = dict(zip(_FIELDS, rows.T, strict=True))
        time = fields["at"] + self._offsets(fields) - start
        seconds, tokens = (
            _since_previous(fields["at"], fields["start"]),
            _since_previous(fields["generated"], fields["start"]),
        )
        order = np.argsort(time, kind="stable")
        columns = {
            "time_s": time,
            **{name: fields[name] for name in ("in_flight", "running", "waiting", "kv_cache_use")},
            "output_tokens": tokens,
            "tokens_per_s": tokens / seconds,
            "steps": _since_previous(fields["steps"], fields["start"]),
            "preemptions": _since_previous(fields["preemptions"], fields["start"]),
        }
        names, starts = [endpoint.name for endpoint in self._starts], fields["start"][order].astype(np.int64)
        return {
            "replica": labels([names[start] for start in starts]),
            **{name: values[order] for name, values in columns.items()},
        }

    def _offsets(self, fields: dict[str, Rows]) -> Rows:
        """Return, per row, this process's clock minus that of the replica's node: 0 on the same node.

        Of another node, it is the smallest difference between reading and publishing a heartbeat.
        """
        offsets = np.zeros(len(fields["start"]))
        for endpoint, number in self._starts.items():
            if not endpoint.address.startswith("ipc:"):
                own = fields["start"] == number
                offsets[own] = (fields["read"] - fields["at"])[own].min()
        return offsets


def _since_previous(values: Rows, groups: Rows) -> Rows:
    """Return the increase since the previous row of the same group; NaN in a group's first row."""
    increase = np.diff(values, prepend=np.nan)
    increase[np.diff(groups, prepend=-1) != 0] = np.nan
    return increase
