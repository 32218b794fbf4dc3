"""Model of a submission tree on disk: submitters, systems, benchmarks, results and logs; files are read lazily."""

import glob
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness_llm.checker.log_rounds import rounds_of_log
from harness_llm.config.rules.rounds import BenchmarkRules, Round
from harness_llm.config.submission_names import VALID
from harness_llm.errors import ConfigError
from harness_llm.loadgen.logs import DETAIL, INFERRED_TOKEN_RATE, DetailLog, parse_detail
from harness_llm.submission.places import PROFILE

DIVISIONS = ("closed", "network", "open")
PERFORMANCE_LOG = Path("performance", "run_1", DETAIL)
"""In the folder of a result."""


def load_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        ConfigError: the file is missing or not a JSON object.
    """
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError("a file is missing", where=str(path), expected="a JSON object") from error
    except (OSError, ValueError) as error:
        raise ConfigError("invalid JSON", where=str(path), found=str(error)) from error
    if not isinstance(document, dict):
        raise ConfigError("a file is not a JSON object", where=str(path), found=type(document).__name__)
    return document


def json_or_none(path: Path) -> dict[str, Any] | None:
    """Read a JSON object; None if `load_json` would raise."""
    try:
        return load_json(path)
    except ConfigError:
        return None


def folders(path: Path) -> list[Path]:
    """Sorted folders in `path`; empty if `path` does not exist."""
    return sorted(p for p in path.iterdir() if p.is_dir()) if path.is_dir() else []


def trees_near(path: Path) -> str:
    """Paths of the tree around `path` and of those in it, separated by commas."""
    around = [folder.parent for folder in (path.absolute(), *path.absolute().parents) if folder.name in DIVISIONS]
    below = [folder.parent for division in DIVISIONS for folder in sorted(path.glob(f"*/{division}"))]
    return ", ".join(map(str, dict.fromkeys([*around, *below])))


def require_tree(path: Path) -> None:
    """Raise ConfigError if `path` is not a tree with a submitter."""
    if any(folders(path / division) for division in DIVISIONS):
        return
    raise ConfigError(
        "no submission tree" if path.is_dir() else "no such tree",
        where=str(path),
        expected=f"a folder with {' or '.join(f'{division}/<submitter>/' for division in DIVISIONS)}",
        hint=f"name {trees_near(path) or 'the folder with closed/ or open/'}",
    )


def official_name(name: str, mapping: Mapping[str, Any], rules: Round) -> str:
    """Official benchmark name for the folder name of a submitter (configuration.py, get_mlperf_model).

    Args:
        mapping: official names by the submitter's names.
    """
    if name in rules.benchmarks or name in rules.not_judged:
        return name
    if known := rules.aliases.get(name) or mapping.get(name):
        return str(known)
    return next((official for part, official in rules.name_parts.items() if part in name), name)


@dataclass(frozen=True)
class Tree:
    """A tree and the rules of a round."""

    path: Path
    round: Round

    @cached_property
    def small(self) -> str:
        """Profile of small runs that all submitters declare; empty if a submitter does not."""
        profiles = [submitter.profile for submitter in self.submitters]
        return next(iter(profiles), "") if VALID not in profiles else ""

    @cached_property
    def submitters(self) -> list["Submitter"]:
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
        return self.tree.path / self.division / self.name

    @cached_property
    def profile(self) -> str:
        """Profile of the runs, from `PROFILE`; the valid profile without that file."""
        return str((json_or_none(self.path / PROFILE) or {}).get("profile", VALID))

    @property
    def enforced(self) -> bool:
        """Whether gates, scenarios and compliance are enforced; not in open."""
        return self.division != "open"

    @property
    def source_path(self) -> Path:
        """Folder with the code that ran."""
        return self.path / self.tree.round.layout.source

    @property
    def mapping_path(self) -> Path:
        """File with official names of the submitter's benchmark names."""
        return self.path / "model_mapping.json"

    @cached_property
    def mapping(self) -> dict[str, Any]:
        """Official names by the submitter's benchmark names; empty outside open."""
        return {} if self.enforced else json_or_none(self.mapping_path) or {}

    @cached_property
    def systems(self) -> list["System"]:
        """The systems that have results."""
        return [System(self, folder.name) for folder in folders(self.path / "results")]

    @property
    def results(self) -> list["Result"]:
        return [result for system in self.systems for benchmark in system.benchmarks for result in benchmark.results]


@dataclass(frozen=True)
class System:
    """`results/<system>/` and `systems/<system>.json`."""

    submitter: Submitter
    name: str

    @property
    def path(self) -> Path:
        """Folder of the results."""
        return self.submitter.path / "results" / self.name

    @property
    def description_path(self) -> Path:
        return self.submitter.path / "systems" / f"{self.name}.json"

    @property
    def nameplate_path(self) -> Path | None:
        """File with the nameplate power of the system; None if the round has no such file."""
        path = self.submitter.tree.round.nameplate_power.format(system=self.name)
        return self.submitter.path / path if path else None

    @cached_property
    def description(self) -> dict[str, Any] | None:
        """Fields of the system description; None if it cannot be read."""
        return json_or_none(self.description_path)

    def field(self, name: str) -> Any:
        """Value of one field of the description; None if it is missing."""
        return (self.description or {}).get(name)

    @cached_property
    def benchmarks(self) -> list["Benchmark"]:
        return [Benchmark(self, folder.name) for folder in folders(self.path)]


@dataclass(frozen=True)
class Benchmark:
    """`results/<system>/<benchmark>/`."""

    system: System
    name: str

    @property
    def path(self) -> Path:
        return self.system.path / self.name

    @property
    def variant(self) -> str:
        """Name of the official benchmark whose rules apply."""
        submitter = self.system.submitter
        return official_name(self.name, submitter.mapping, submitter.tree.round)

    @property
    def rules(self) -> BenchmarkRules | None:
        """Rules of the official benchmark; None if the round does not have it or it is not judged here."""
        return self.system.submitter.tree.round.benchmarks.get(self.variant)

    @cached_property
    def results(self) -> list["Result"]:
        return [Result(self, folder.name) for folder in folders(self.path)]


@dataclass(frozen=True)
class Result:
    """`results/<system>/<benchmark>/<scenario>/`, with measurements and compliance tests."""

    benchmark: Benchmark
    folder: str

    @property
    def scenario(self) -> str:
        """Scenario of the folder, ignoring case; the folder's name if it is not a scenario."""
        return next((name for name in self.round.scenarios if name.lower() == self.folder.lower()), self.folder)

    @property
    def judged(self) -> bool:
        """Whether the rules on results apply: an LLM benchmark measured with LoadGen."""
        return self.benchmark.rules is not None and not self.endpoints

    @property
    def endpoints(self) -> bool:
        """Whether the result was measured with mlcommons/endpoints instead of LoadGen (loader.py:469-473)."""
        logs = self.performance.path.exists() or self.accuracy.path.exists()
        return not logs and (self.path / "performance" / "result_summary.json").is_file()

    @property
    def system(self) -> System:
        return self.benchmark.system

    @property
    def submitter(self) -> Submitter:
        return self.system.submitter

    @property
    def round(self) -> Round:
        return self.submitter.tree.round

    @property
    def rules(self) -> BenchmarkRules:
        """Rules of the benchmark; ConfigError if the round does not have it."""
        return self.round.benchmark(self.benchmark.variant)

    @property
    def path(self) -> Path:
        return self.benchmark.path / self.folder

    @cached_property
    def performance(self) -> "Log":
        return Log(self, self.path / PERFORMANCE_LOG, "PerformanceOnly")

    @cached_property
    def accuracy(self) -> "Log":
        return Log(self, self.path / "accuracy" / DETAIL, "AccuracyOnly")

    @cached_property
    def of_another_round(self) -> bool:
        """Whether the performance log belongs to other rounds only, which one finding on the tree reports."""
        try:
            names = rounds_of_log(self.performance.detail).names
        except ConfigError:
            return False
        return bool(names) and self.round.round not in names

    @cached_property
    def measurements(self) -> Path:
        """The measurements file, by any name that the official checker accepts; default is the name in the layout."""
        layout = self.round.layout
        pattern = layout.measurements_glob.format_map({key: glob.escape(name) for key, name in self._names.items()})
        return min(self.submitter.path.glob(pattern), default=self._path_of(layout.measurements))

    def compliance(self, test: str) -> Path:
        return self._path_of(self.round.layout.compliance) / test

    @property
    def _names(self) -> dict[str, str]:
        return {"system": self.system.name, "benchmark": self.benchmark.name, "scenario": self.folder}

    def _path_of(self, template: str) -> Path:
        return self.submitter.path / template.format_map(self._names)


@dataclass(frozen=True)
class Log:
    """An mlperf_log_detail.txt of a result; `mode` is the expected mode of LoadGen."""

    result: Result
    path: Path
    mode: str

    @cached_property
    def detail(self) -> DetailLog:
        """Parsed log; ConfigError if it is not `readable`."""
        return parse_detail(self.path)

    @property
    def metric_keys(self) -> tuple[str, ...]:
        """Keys that the official checker reads for the figure of the result, which the last one has."""
        scenario, keys = self.detail.scenario, self.result.round.metrics.get(self.detail.scenario, ())
        if not self.result.rules.token_latencies:
            return (*keys[:1], *([INFERRED_TOKEN_RATE[scenario]] if scenario in INFERRED_TOKEN_RATE else ()))
        return keys

    @cached_property
    def readable(self) -> bool:
        """Whether the log can be read."""
        try:
            return bool(self.detail.values)
        except ConfigError:
            return False
