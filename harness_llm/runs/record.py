"""Run directories: one for each execution of LoadGen. run.json, its record, is written at the start and at the end.

A run is RUNNING while its lock is held. If the record still has this state afterwards, the run was INTERRUPTED.
"""

import datetime as dt
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness_llm.fileio import write_atomically
from harness_llm.hardware.ecc import Ecc

RECORD = "run.json"
LOCK = "run.lock"
VERSION = 1
"""Version of the records. Runs whose records lack facts that are compared now have a lower one, and never count."""
_NOT_JUDGED = "the log is complete; its judgement was interrupted"
_IN_ALL_VERSIONS = {"state", "benchmark", "scenario", "test", "started"}


class State(StrEnum):
    """The state of a run. Only VALID runs are packaged.

    MEASURED: LoadGen's log is complete, and is not judged. PROFILED: a profiler slowed the run.
    """

    MEASURED = "MEASURED"
    VALID = "VALID"
    INVALID = "INVALID"
    DEGRADED = "DEGRADED"
    PROFILED = "PROFILED"
    FAILED = "FAILED"
    RUNNING = "RUNNING"
    INTERRUPTED = "INTERRUPTED"


@dataclass(frozen=True, order=True)
class RunKey:
    """Benchmark, scenario and test; the test is performance, accuracy or a compliance test such as TEST06."""

    benchmark: str
    scenario: str
    test: str

    def __str__(self) -> str:
        return f"{self.benchmark}/{self.scenario}/{self.test}"


def digest(facts: dict[str, Any]) -> str:
    """sha256 over the canonical JSON of `facts`."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()


class NodeRecord(BaseModel):
    """A machine that made a run: a node of the cluster, or a single machine.

    Attributes:
        machine: from `detect`; empty if the system file alone describes the machine.
        host: settings of the machine that may change its speed (governor, power caps, ECC …).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: dict[str, str]
    host: dict[str, str]
    ecc: Ecc


class RunRecord(BaseModel):
    """The content of run.json. A new field has a default, so that earlier records are read.

    Attributes:
        version: of the program's records, see VERSION; 0 before records had one.
        reasons: why the state is not VALID, one sentence each.
        notes: what the state does not depend on, such as preemptions and what closed does not allow.
        judged_notes: notes of the judgement, such as missed gates that are not enforced.
        fingerprint: the facts that performance, accuracy and compliance of one result must share.
        nodes: the machines of the run, by address; a single machine has the address "". Empty in benchmarks.
        run_facts: data set, sampling, user.conf and audit settings; a rule of its own applies to each.
        at_default: dotted names of the fingerprint's and run facts' fields that have the default of this version.
        metrics: by name; the name has the unit.
        judged_by: digest of the source and the rules that judged the complete log; empty without a judgement.
        logs: sha256 of LoadGen's logs as judged, by name.
        prediction: of the probe: fields of `Prediction`, and the relative `error` after the run; empty without a probe.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = 0
    state: State
    reasons: list[str]
    notes: list[str] = []
    judged_notes: list[str] = []
    benchmark: str
    scenario: str
    test: str
    system: str
    round: str
    division: str
    profile: str
    engine: str
    command: str
    started: dt.datetime
    ended: dt.datetime
    fingerprint: dict[str, Any]
    nodes: dict[str, NodeRecord] = {}
    run_facts: dict[str, Any]
    at_default: list[str] = []
    metrics: dict[str, float]
    judged_by: str = ""
    logs: dict[str, str] = {}
    prediction: dict[str, float] = {}

    @property
    def run_key(self) -> RunKey:
        """Benchmark, scenario and test."""
        return RunKey(self.benchmark, self.scenario, self.test)

    @property
    def hosts(self) -> dict[str, dict[str, str]]:
        """The settings of every machine of the run, by address as in `nodes`."""
        return {address: node.host for address, node in self.nodes.items()}

    @property
    def fingerprint_digest(self) -> str:
        """Equal for runs that can be combined in one result."""
        return digest(self.fingerprint)


@dataclass(frozen=True)
class Run:
    """A run directory.

    Attributes:
        record: None until the run has ended, and without a readable run.json.
        fault: why run.json cannot be read.
        begun: the record of the start, of a run that has not ended.
    """

    path: Path
    run_key: RunKey
    system: str
    record: RunRecord | None
    state: State
    fault: str = ""
    begun: RunRecord | None = None

    @property
    def reasons(self) -> list[str]:
        """Why the run is not a result."""
        if self.record is None:
            return [self.fault] if self.fault else []
        return self.record.reasons or ([_NOT_JUDGED] if self.state is State.MEASURED else [])

    @property
    def notes(self) -> list[str]:
        """What the state does not depend on."""
        return [*self.record.judged_notes, *self.record.notes] if self.record else []


@contextmanager
def open_run(path: Path) -> Iterator[None]:
    """Create the run directory and hold its lock.

    Raises:
        FileExistsError: the directory exists: a run is never repeated in its directory.
    """
    path.mkdir(parents=True)
    with lock_run(path):
        yield


@contextmanager
def lock_run(path: Path) -> Iterator[None]:
    """Hold the lock of a run directory."""
    with (path / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def begin(path: Path, record: RunRecord) -> None:
    """Write run.json of a run that starts; its state must be RUNNING."""
    _write(path, record)


def finish(path: Path, record: RunRecord) -> Run:
    """Write run.json, which ends the measurement or the judgement."""
    _write(path, record)
    return Run(path, record.run_key, record.system, record, record.state)


def _write(path: Path, record: RunRecord) -> None:
    document = record.model_dump(mode="json") | {
        "fingerprint_digest": record.fingerprint_digest,
        "run_facts_digest": digest(record.run_facts),
    }
    with write_atomically(path / RECORD) as temporary, temporary.open("w") as file:
        file.write(json.dumps(document, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())


def load_run(path: Path) -> Run:
    """Read one run directory."""
    system, benchmark, scenario, test = path.parts[-4:]
    run_key = RunKey(benchmark, scenario, test)
    record = _read_record(path / RECORD) if (path / RECORD).is_file() else None
    if isinstance(record, str):
        return Run(path, run_key, system, None, State.FAILED, record)
    if record and record.state not in (State.MEASURED, State.RUNNING):
        return Run(path, run_key, system, record, record.state)
    if _is_locked(path / LOCK):
        return Run(path, run_key, system, None, State.RUNNING, begun=record)
    if record and record.state is State.MEASURED:
        return Run(path, run_key, system, record, State.MEASURED)
    return Run(path, run_key, system, None, State.INTERRUPTED, begun=record)


def _read_record(file: Path) -> RunRecord | str:
    """Return the record in `file`, or the reason why it cannot be read."""
    try:
        document = json.loads(file.read_text())
        missing = {name for name, field in RunRecord.model_fields.items() if field.is_required()} - document.keys()
        if missing and document.keys() >= _IN_ALL_VERSIONS:
            fields = ", ".join(sorted(missing))
            return f"run.json was written by an earlier version of harness-llm (missing fields: {fields})"
        return RunRecord.model_validate({name: document[name] for name in RunRecord.model_fields.keys() & document})
    except (ValueError, AttributeError, TypeError) as error:
        return f"run.json is damaged: {error!r}"


def find_runs(logs: Path, system: str = "*") -> list[Run]:
    """All runs of `system`, or of all systems, oldest first."""
    return [load_run(lock.parent) for lock in sorted(logs.glob(f"*/{system}/*/*/*/{LOCK}"))]


def _is_locked(lock: Path) -> bool:
    if not lock.exists():
        return False
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
