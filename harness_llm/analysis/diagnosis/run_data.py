"""Read a run for its diagnosis: record, settings, LoadGen's log, and records of queries, replicas and devices."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness_llm.analysis.bundle import open_run_folder
from harness_llm.analysis.diagnosis.finding import Setting, figure
from harness_llm.analysis.diagnosis.robust import Floats
from harness_llm.analysis.recorded_conf import conf_file, recorded_conf
from harness_llm.errors import ConfigError
from harness_llm.fileio import read_yaml
from harness_llm.loadgen.logs import DETAIL, DetailLog, parse_detail
from harness_llm.protocol.record_files import DEVICES, QUERIES, REPLICAS, RecordFile
from harness_llm.runs.record import RECORD, Run, RunRecord
from harness_llm.runs.records import read_record

CONFIG = "config.yaml"
Columns = Mapping[str, NDArray[Any]]
"""Columns of a record by name: numbers with NaN for null, texts with None."""


@dataclass(frozen=True)
class ReplicaData:
    """Queries and heartbeats of one replica.

    Attributes:
        own: whether each query of the run is of this replica.
        sent, first, done: times of its queries.
        beats: its rows of replicas.parquet.
    """

    name: str
    own: NDArray[np.bool_]
    sent: Floats
    first: Floats
    done: Floats
    beats: Columns

    @functools.cached_property
    def _busy(self) -> tuple[Floats, Floats]:
        """Times of all changes, and the seconds with a query until each."""
        sent, done = self.sent[~np.isnan(self.sent)], self.done[~np.isnan(self.done)]
        times = np.concatenate([sent, done])
        order = np.argsort(times, kind="stable")
        level = np.cumsum(np.repeat([1, -1], [len(sent), len(done)])[order])
        times = times[order]
        return times, np.concatenate([[0.0], np.cumsum(np.diff(times) * (level[:-1] > 0))])

    def busy_s(self, times: Floats) -> Floats:
        """The seconds in which the replica had a query, until each of `times`."""
        return np.interp(times, *self._busy)


@dataclass(frozen=True)
class RunData:
    """A run and its records; None for a file that the run does not have, and for queries without a completion.

    Attributes:
        settings: config.yaml.
    """

    run: Run
    record: RunRecord
    settings: Mapping[str, Any]
    log: DetailLog | None
    queries: Columns | None
    replicas: Columns | None
    devices: Columns | None

    @functools.cached_property
    def targets(self) -> dict[str, tuple[str, float]]:
        """The lines of user.conf: whole name and value, by the last part of the name."""
        found = recorded_conf(self.record)
        return {name.rpartition(".")[2]: (name, float(value)) for name, value in found.items()}

    @property
    def scenario(self) -> str:
        """LoadGen's scenario; Server for Interactive."""
        return "Server" if self.record.scenario == "Interactive" else self.record.scenario

    @property
    def target_qps(self) -> float:
        """The target of user.conf; NaN without one."""
        return self.targets.get("target_qps", ("", math.nan))[1]

    def target(self, key: str, following: float | None) -> Setting:
        """The setting of `key` in user.conf, with its next value."""
        name, now = self.targets.get(key, (key, math.nan))
        text = "" if following is None else figure(following).replace(",", "")
        return Setting(name, "" if math.isnan(now) else f"{now:g}", text, conf_file(self.record))

    def option(self, section: str, name: str, following: object = "") -> Setting:
        """The setting `section.name` of the engine settings, with its next value."""
        now = (self.settings.get(section) or {}).get(name, "")
        return Setting(f"{section}.{name}", str(now), str(following))

    @property
    def batch(self) -> int:
        """llm_config.max_num_seqs."""
        return int(self.settings["llm_config"]["max_num_seqs"])

    @functools.cached_property
    def by_replica(self) -> dict[str, ReplicaData]:
        """The replicas that got queries, in order of their numbers; empty without records."""
        if self.queries is None or self.replicas is None:
            return {}
        names = {name for name in set(self.queries["replica"]) if name is not None}
        ordered = sorted(names, key=lambda name: (len(name), name))
        return {name: _replica_data(name, self.queries, self.replicas) for name in ordered}

    def replica_log(self, replica: str) -> str:
        """The log of the process with `replica`, relative to the run's scenario folder."""
        return str(self.run.path.parent / f"{replica}.log")

    @functools.cached_property
    def window(self) -> tuple[float, float]:
        """Seconds of the first and the last issue."""
        issue = self.require_queries["issue_s"]
        return float(issue.min()), float(issue.max())

    @property
    def require_queries(self) -> Columns:
        """The queries; call it only if there are some."""
        if self.queries is None:
            raise ValueError("no queries.parquet")
        return self.queries

    @property
    def end_s(self) -> float:
        """Seconds of the last completion."""
        return float(np.nanmax(self.require_queries["completion_s"]))


def _replica_data(name: str, queries: Columns, rows: Columns) -> ReplicaData:
    own, beats = queries["replica"] == name, rows["replica"] == name
    return ReplicaData(
        name,
        own,
        sent=queries["send_s"][own],
        first=queries["first_token_s"][own],
        done=queries["completion_s"][own],
        beats={column: values[beats] for column, values in rows.items()},
    )


def read_run(path: Path) -> RunData:
    """Read the run directory `path`.

    Raises:
        ConfigError: it is no run directory, the run has no readable record, it has records of queries but no engine
            settings, or a file is damaged.
    """
    run = open_run_folder(path)
    path = run.path
    if run.record is None:
        raise ConfigError("a run has no record", where=str(path / RECORD), found=run.fault or str(run.state))
    queries = _columns(path, QUERIES)
    settings = (read_yaml(path / CONFIG) or {}) if (path / CONFIG).is_file() else {}
    if queries is not None and "llm_config" not in settings:
        raise ConfigError("a run has no engine settings", where=str(path / CONFIG), expected="llm_config")
    return RunData(
        run=run,
        record=run.record,
        settings=settings,
        log=parse_detail(path / DETAIL) if (path / DETAIL).is_file() else None,
        queries=None if queries is None or np.isnan(queries["completion_s"]).all() else queries,
        replicas=_columns(path, REPLICAS),
        devices=_columns(path, DEVICES),
    )


def _columns(run: Path, file: RecordFile) -> Columns | None:
    """The columns of a record; None without the file or without rows."""
    if not (run / file.name).is_file():
        return None
    table = read_record(run, file)
    if not len(table):
        return None
    return {column.name: _column(table[column.name], column.type) for column in file.columns}


def _column(values: Any, kind: str) -> NDArray[Any]:
    if kind == "string":
        return np.array(values.to_pylist(), dtype=object)
    return np.asarray(values.cast("float64").to_numpy(), dtype=np.float64)
