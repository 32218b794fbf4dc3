"""Tuning sessions: `build/tuning/<session>/` with session.json and trials.jsonl, one line for each finished trial.

A line is written at once, with fsync. A line without a newline was being written when the process was
killed: readers ignore it, and the next session of the folder removes it.
"""

import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness_llm.errors import ConfigError
from harness_llm.fileio import write_atomically
from harness_llm.paths import LOG_TIME

SESSION, TRIALS = "session.json", "trials.jsonl"

What = Literal["target", "engine", "both"]
Kind = Literal["probe", "confirmation", "engine"]
TrialState = Literal["VALID", "INVALID", "FAILED", "PRUNED"]


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement: a probe, a confirmation, or a probe of engine settings.

    Attributes:
        number: from 0, in order of time.
        settings: engine settings that differ from the shipped ones, by `section.key`.
        state: LoadGen's verdict; FAILED if the engine or LoadGen failed, PRUNED if the trial was not measured fully.
        throughput: samples per second; null if nothing was measured.
        ttft_margin: 1 - p99 TTFT ÷ limit; null without a limit.
        tpot_margin: 1 - p99 TPOT ÷ limit; null without a limit.
        reason: why the state is not VALID.
        run: path of the run directory, if there is one.
    """

    number: int
    kind: Kind
    scenario: str
    state: TrialState
    seconds: float
    settings: dict[str, Any] = {}
    target_qps: float | None = None
    queries: int | None = None
    throughput: float | None = None
    ttft_margin: float | None = None
    tpot_margin: float | None = None
    reason: str = ""
    run: str | None = None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """What a tuning session measures, and what it found.

    Attributes:
        fingerprint: digest of everything that must be equal for trials to be compared.
        command: the command that started the session; the same command continues it.
        found: values of the settings found; null until the session ends.
    """

    benchmark: str
    scenario: str
    system_name: str
    gpu: str
    what: What
    fingerprint: str
    command: str
    started: dt.datetime
    ended: dt.datetime | None = None
    found: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        """Name of the folder."""
        return f"{self.started:{LOG_TIME}}-{self.benchmark}-{self.scenario}-{self.what}"

    def measures_the_same(self, other: "Session") -> bool:
        """Whether trials of both sessions can be compared."""
        fields = ("benchmark", "scenario", "system_name", "gpu", "what", "fingerprint")
        return all(getattr(self, name) == getattr(other, name) for name in fields)


class TrialStore:
    """The trials of one session.

    Attributes:
        folder: of the session.
        session: content of session.json.
        trials: finished trials, in order.
    """

    def __init__(self, folder: Path) -> None:
        """Open the session in `folder`, and remove a line that was not written completely."""
        self.folder = folder
        self.session = read_session(folder)
        self.trials = read_trials(folder)
        file = folder / TRIALS
        if file.exists():
            os.truncate(file, file.read_bytes().rfind(b"\n") + 1)

    @property
    def next_number(self) -> int:
        """The number of the next trial."""
        return len(self.trials)

    def append(self, trial: Trial) -> None:
        """Append a finished trial to the file; its number must be `next_number`."""
        if trial.number != self.next_number:
            raise ValueError(f"trial {trial.number} follows trial {self.next_number - 1}")
        with (self.folder / TRIALS).open("ab") as file:
            file.write(msgspec.json.encode(trial) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.trials.append(trial)

    def finish(self, found: dict[str, Any]) -> None:
        """Write the values found; the same command then starts a new session."""
        self.session = msgspec.structs.replace(self.session, ended=dt.datetime.now(dt.UTC), found=found)
        _write_session(self.folder, self.session)


def open_session(root: Path, session: Session, *, ended: bool = False) -> TrialStore:
    """Continue the newest session below `root` that measures the same as `session`, or start `session`.

    Args:
        ended: whether to continue a session that has ended, too.
    """
    same = [folder for folder in session_folders(root) if read_session(folder).measures_the_same(session)]
    if same and (ended or read_session(same[-1]).ended is None):
        return TrialStore(same[-1])
    folder = root / session.name
    folder.mkdir(parents=True)
    _write_session(folder, session)
    return TrialStore(folder)


def session_folders(root: Path) -> list[Path]:
    """The folders of all sessions below `root`, oldest first."""
    return sorted(file.parent for file in root.glob(f"*/{SESSION}"))


def read_session(folder: Path) -> Session:
    """Read session.json.

    Raises:
        ConfigError: it is missing or damaged.
    """
    file = folder / SESSION
    try:
        return msgspec.json.decode(file.read_bytes(), type=Session)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(
            "unreadable tuning session",
            where=str(file),
            found=str(error),
            hint="move its folder away: its trials cannot be used again",
        ) from error


def read_trials(folder: Path) -> list[Trial]:
    """Read the finished trials of a session; none before the first has ended.

    Raises:
        ConfigError: a line is damaged.
    """
    file = folder / TRIALS
    return list(_decode(file)) if file.exists() else []


def _decode(file: Path) -> Iterator[Trial]:
    lines = file.read_bytes().split(b"\n")[:-1]  # the last one is empty, or not written completely
    for number, line in enumerate(lines, start=1):
        try:
            yield msgspec.json.decode(line, type=Trial)
        except msgspec.DecodeError as error:
            raise ConfigError("damaged trial", where=f"{file}:{number}", found=str(error)) from error


def _write_session(folder: Path, session: Session) -> None:
    with write_atomically(folder / SESSION) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(session), indent=2) + b"\n")
