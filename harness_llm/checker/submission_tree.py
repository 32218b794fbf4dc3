"""A submission tree as it lies on disk: submitters, systems, results; files are read when asked for."""

import glob
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness_llm.config.submission_names import VALID
from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import DETAIL, DetailLog, parse_detail
from harness_llm.rules.rounds import BenchmarkRules, Round
from harness_llm.submission.places import PROFILE

DIVISIONS = ("closed", "network", "open")


def load_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ConfigError: there is none.
    """
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError("a file is missing", where=str(path), expected="a JSON object") from error
    except (OSError, ValueError) as error:
        raise ConfigError("a file is not JSON", where=str(path), found=str(error)) from error
    if not isinstance(document, dict):
        raise ConfigError("a file is not a JSON object", where=str(path), found=type(document).__name__)
    return document


def json_or_none(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where `load_json` would complain."""
    try:
        return load_json(path)
    except ConfigError:
        return None


def folders(path: Path) -> list[Path]:
    """The folders in `path`, sorted; none if there is no such path."""
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []


def official_name(name: str, mapping: Mapping[str, Any], rules: Round) -> str:
    """The official checker's name for a benchmark that a submitter calls `name` (configuration.py, get_mlperf_model).

    Args:
        mapping: of the submitter's names to official ones.
    """
    if name in rules.benchmarks or name in rules.not_judged:
        return name
    if known := rules.aliases.get(name) or mapping.get(name):
        return str(known)
    return next((official for part, official in rules.name_parts.items() if part in name), name)


def declared_round(tree: Path) -> str:
    """The round that a tree of ours says it was made for; empty for others."""
    found = (json_or_none(file) or {} for file in sorted(tree.glob(f"*/*/{PROFILE}")))
    return next((str(profile["round"]) for profile in found if "round" in profile), "")


@dataclass(frozen=True)
class Tree:
    """Everything below one root, judged by one round."""

    path: Path
    round: Round

    @cached_property
    def small(self) -> str:
        """The profile by which each submitter declares that its runs are too small; empty if one does not."""
        profiles = [submitter.profile for submitter in self.submitters]
        return next(iter(profiles), "") if VALID not in profiles else ""

    @cached_property
    def submitters(self) -> list["Submitter"]:
        """All submitters of all divisions."""
        return [
            Submitter(self, division, folder.name) for division in DIVISIONS for folder in folders(self.path / division)
        ]


@dataclass(frozen=True)
class Submitter:
    """`<division>/<submitter>/`."""

    tree: Tree
    division: str
    name: str

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.tree.path / self.division / self.name

    @cached_property
    def profile(self) -> str:
        """The profile of its runs, as `PROFILE` declares it; the valid one if nothing is declared."""
        return str((json_or_none(self.path / PROFILE) or {}).get("profile", VALID))

    @property
    def enforced(self) -> bool:
        """Whether gates, scenarios and compliance bind here; open reports instead."""
        return self.division != "open"

    @property
    def mapping_path(self) -> Path:
        """What names of its own stand for."""
        return self.path / "model_mapping.json"

    @cached_property
    def mapping(self) -> dict[str, Any]:
        """Its own benchmark names to official ones; none outside open."""
        return {} if self.enforced else json_or_none(self.mapping_path) or {}

    @cached_property
    def systems(self) -> list["System"]:
        """The systems that have results."""
        return [System(self, folder.name) for folder in folders(self.path / "results")]

    @property
    def results(self) -> list["Result"]:
        """All results of all systems."""
        return [result for system in self.systems for benchmark in system.benchmarks for result in benchmark.results]


@dataclass(frozen=True)
class System:
    """`results/<system>/` and `systems/<system>.json`."""

    submitter: Submitter
    name: str

    @property
    def path(self) -> Path:
        """The folder of its results."""
        return self.submitter.path / "results" / self.name

    @property
    def description_path(self) -> Path:
        """What it is made of."""
        return self.submitter.path / "systems" / f"{self.name}.json"

    @property
    def nameplate_path(self) -> Path | None:
        """The file with the power that its supplies are made for; None where the round has none."""
        place = self.submitter.tree.round.nameplate_power.format(system=self.name)
        return self.submitter.path / place if place else None

    @cached_property
    def description(self) -> dict[str, Any] | None:
        """The system's fields; None if they cannot be read."""
        return json_or_none(self.description_path)

    def field(self, name: str) -> Any:
        """The value of one field of the description; None without."""
        return (self.description or {}).get(name)

    @cached_property
    def benchmarks(self) -> list["Benchmark"]:
        """The benchmarks that have a folder."""
        return [Benchmark(self, folder.name) for folder in folders(self.path)]


@dataclass(frozen=True)
class Benchmark:
    """`results/<system>/<benchmark>/`."""

    system: System
    name: str

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.system.path / self.name

    @property
    def variant(self) -> str:
        """The official benchmark that it is judged by."""
        submitter = self.system.submitter
        return official_name(self.name, submitter.mapping, submitter.tree.round)

    @property
    def rules(self) -> BenchmarkRules | None:
        """The rules of the official benchmark; None where the round does not have it or it is not judged here."""
        return self.system.submitter.tree.round.benchmarks.get(self.variant)

    @cached_property
    def results(self) -> list["Result"]:
        """One per scenario folder."""
        return [Result(self, folder.name) for folder in folders(self.path)]


@dataclass(frozen=True)
class Result:
    """`results/<system>/<benchmark>/<scenario>/` and what belongs to it."""

    benchmark: Benchmark
    folder: str

    @property
    def scenario(self) -> str:
        """Its scenario, however its folder spells it; the folder's name where there is no such scenario."""
        return next((name for name in self.round.scenarios if name.lower() == self.folder.lower()), self.folder)

    @property
    def judged(self) -> bool:
        """Whether the rules on results apply: to LLM benchmarks, measured with LoadGen."""
        return self.benchmark.rules is not None and not self.endpoints

    @property
    def endpoints(self) -> bool:
        """Whether it was measured with mlcommons/endpoints instead of LoadGen (loader.py:469-473)."""
        logs = self.performance.path.exists() or self.accuracy.path.exists()
        return not logs and (self.path / "performance" / "result_summary.json").is_file()

    @property
    def system(self) -> System:
        """The system that was measured."""
        return self.benchmark.system

    @property
    def submitter(self) -> Submitter:
        """Who submits it."""
        return self.system.submitter

    @property
    def round(self) -> Round:
        """The round that it is judged by."""
        return self.submitter.tree.round

    @property
    def rules(self) -> BenchmarkRules:
        """The rules of its benchmark; asked for only where the round has it."""
        return self.round.benchmark(self.benchmark.variant)

    @property
    def path(self) -> Path:
        """Its folder."""
        return self.benchmark.path / self.folder

    @cached_property
    def performance(self) -> "Log":
        """The performance run's log."""
        return Log(self, self.path / "performance" / "run_1" / DETAIL, "PerformanceOnly")

    @cached_property
    def accuracy(self) -> "Log":
        """The accuracy run's log."""
        return Log(self, self.path / "accuracy" / DETAIL, "AccuracyOnly")

    @cached_property
    def measurements(self) -> Path:
        """The measurements, by a name that the official checker takes; by ours where there are none."""
        layout = self.round.layout
        pattern = layout.measurements_glob.format_map({key: glob.escape(name) for key, name in self._names.items()})
        return min(self.submitter.path.glob(pattern), default=self._place(layout.measurements))

    def compliance(self, test: str) -> Path:
        """The folder of a compliance test."""
        return self._place(self.round.layout.compliance) / test

    @property
    def _names(self) -> dict[str, str]:
        return {"system": self.system.name, "benchmark": self.benchmark.name, "scenario": self.folder}

    def _place(self, template: str) -> Path:
        return self.submitter.path / template.format_map(self._names)


@dataclass(frozen=True)
class Log:
    """One mlperf_log_detail.txt of a result, and LoadGen's name for the test that it should be of."""

    result: Result
    path: Path
    mode: str

    @cached_property
    def detail(self) -> DetailLog:
        """The log itself; asked for only where it is `readable`."""
        return parse_detail(self.path)

    @cached_property
    def readable(self) -> bool:
        """Whether the log can be read."""
        try:
            return bool(self.detail.values)
        except ConfigError:
            return False
