"""The source in a tree: that of the packaged runs, and what differs from it in other runs and in the present files."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.commands import command
from harness_llm.errors import GateFailed
from harness_llm.runs.fingerprint import SOURCE
from harness_llm.runs.record import Run
from harness_llm.runs.stored_source import STORED, Source, different_files, read_stored, source_of

_PERFORMANCE = "performance"
_NAMES_SHOWN = 12


@dataclass(frozen=True)
class PackedSource:
    """The source of the newest performance run that is packaged.

    Attributes:
        files: of the source.
        digest: of the part that takes part in measurements, as in fingerprints.
        others: packaged runs of another source, as `<scenario> <test>`, and the files that differ.
        remaining: scenarios in the tree, packaged before, whose measuring source differs.
        changed: present files that differ.
    """

    files: Source = field(default_factory=dict)
    digest: str = ""
    others: Mapping[str, Sequence[str]] = field(default_factory=dict)
    remaining: Sequence[str] = ()
    changed: Sequence[str] = ()

    @property
    def notices(self) -> list[str]:
        """One sentence for each difference."""
        start = "the packed source is"
        same: dict[str, list[str]] = {}
        for run, files in self.others.items():
            same.setdefault(_listed(files), []).append(run)
        found = [f"{start} not that of {', '.join(runs)}; different files: {files}" for files, runs in same.items()]
        if self.remaining:
            names = ", ".join(self.remaining)
            found.append(f"{start} not that of {names}, packaged before; package all scenarios together")
        if self.changed:
            found.append(f"the present files differ from the packed source: {_listed(self.changed)}")
        return found


def packed_source(
    benchmark: Benchmark, runs: Sequence[Run], remaining: Mapping[str, Mapping[str, Any]], present: Source
) -> PackedSource:
    """The source to pack with `runs`.

    Args:
        remaining: fingerprints of the scenarios that remain in the tree.
        present: from `present_source`.

    Raises:
        GateFailed: a run has no source.
        ConfigError: a stored source is damaged.
    """
    sources = {_name(run): source_of(benchmark, _stored(run)) for run in runs}
    newest = max((run for run in runs if run.run_key.test == _PERFORMANCE), key=_started)
    files, digest = sources[_name(newest)], str(newest.record and newest.record.fingerprint.get(SOURCE))
    differences = {name: different_files(source, files) for name, source in sources.items()}
    return PackedSource(
        files,
        digest,
        others={name: different for name, different in differences.items() if different},
        remaining=[name for name, fingerprint in remaining.items() if fingerprint.get(SOURCE) != digest],
        changed=different_files(source_of(benchmark, present), files),
    )


def _started(run: Run) -> dt.datetime:
    return run.record.started if run.record else dt.datetime.min.replace(tzinfo=dt.UTC)


def _stored(run: Run) -> Source:
    source = read_stored(run.path)
    if source is None:
        raise GateFailed(
            "a run lacks its source, which is packed",
            where=str(run.path / STORED),
            expected="the archive that the run stored at its start",
            found="no such file; runs of earlier versions of harness-llm have none",
            hint=f"remove {run.path}, then {command('submit')} makes {run.run_key} again",
        )
    return source


def _name(run: Run) -> str:
    return f"{run.run_key.scenario} {run.run_key.test}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
