"""Runs of the two sides of a comparison: repeats of each scenario and test, with equal settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness_llm.analysis.recorded_conf import recorded_conf
from harness_llm.config.commands import command
from harness_llm.errors import ConfigError
from harness_llm.runs.facts import differences
from harness_llm.runs.record import LOCK, RECORD, Run, RunRecord, load_run

Runs = Mapping[str, Mapping[str, Sequence[Run]]]
"""By scenario and test, oldest first."""


def split_paths(text: str) -> list[Path]:
    """The comma-separated paths in `text`; one path if it exists with its commas."""
    return [Path(text)] if Path(text).exists() else [Path(part.strip()) for part in text.split(",")]


def read_runs(folders: Sequence[Path]) -> Runs:
    """The runs with a record below `folders`; of a run, also the other runs of its scenario.

    Raises:
        ConfigError: there is no run, a named run or every run has no record, or benchmarks or settings differ.
    """
    runs = sorted({path: load_run(path) for folder in folders for path in _run_folders(folder)}.items())
    recorded = [run for _, run in runs if run.record]
    if not recorded:
        raise _without_record(runs[0][1])
    found: dict[str, dict[str, list[Run]]] = {}
    for run in recorded:
        _check_benchmark(run, recorded[0])
        repeats = found.setdefault(run.run_key.scenario, {}).setdefault(run.run_key.test, [])
        if repeats:
            _check_settings(repeats[0], run)
        repeats.append(run)
    return found


def _run_folders(folder: Path) -> list[Path]:
    folder = folder.resolve()
    if not folder.is_dir():
        raise ConfigError("no such folder", where=str(folder), hint="runs are below build/logs")
    is_run = (folder / LOCK).is_file()
    if is_run and not (named := load_run(folder)).record:
        raise _without_record(named)
    found = [lock.parent for lock in (folder.parent if is_run else folder).rglob(LOCK)]
    if not found:
        raise ConfigError(
            "no run found",
            where=str(folder),
            expected="a run directory, or a folder with run directories",
            hint=f"{command('runs')} lists the folders of all runs",
        )
    return found


def _without_record(run: Run) -> ConfigError:
    return ConfigError("a run has no record", where=str(run.path / RECORD), found=run.fault or str(run.state))


def _check_benchmark(run: Run, first: Run) -> None:
    if run.run_key.benchmark != first.run_key.benchmark:
        names = f"{first.run_key.benchmark} and {run.run_key.benchmark}"
        raise ConfigError("the folder has runs of several benchmarks", where=str(run.path), found=names)


def _check_settings(first: Run, other: Run) -> None:
    lines = differences(_settings(first), _settings(other))
    if lines:
        raise ConfigError(
            f"runs of {other.run_key} on one side of the comparison have different settings",
            where=f"{first.path}\n         {other.path}",
            found="; ".join(lines),
            hint=f"select runs of one setting: {command('runs')} lists fingerprints and targets",
        )


def _settings(run: Run) -> dict[str, Any]:
    """What is equal in repeats; the settings of the host and the counters of the engine may differ."""
    varying = {"counters", *(_host_settings(run.record) if run.record else ())}
    return {name: value for name, value in facts(run).items() if name not in varying}


def facts(run: Run) -> dict[str, Any]:
    """The facts of a run that can differ from another run."""
    if run.record is None:
        return {}
    record = run.record
    run_facts = record.run_facts | {"user_conf": recorded_conf(record)}
    named = {name: getattr(record, name) for name in ("system", "round", "division", "profile")}
    return named | record.fingerprint | run_facts | _host_settings(record)


def _host_settings(record: RunRecord) -> dict[str, str]:
    """The settings of all machines; the names of a cluster's begin with the address."""
    found = {f"{address}.{name}": value for address, host in record.hosts.items() for name, value in host.items()}
    return {name.removeprefix("."): value for name, value in found.items()}
