"""Paths of the parts of a result, by the layout of its round."""

from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.submission_names import Submission

README = "README.md"
RESULTS = "results"
DOCUMENTATION = "documentation"
SYSTEMS = "systems"
PROFILE = f"{DOCUMENTATION}/profile.json"
"""Profile of the runs in a submitter's folder; submission_rules:410 forbids files at the root of the tree."""
IMPLEMENTATION = "harness-llm"
"""<implementation_id>, the source folder in the benchmark's folder (submission_rules:372)."""


@dataclass(frozen=True)
class Places:
    """Paths of one result in a submitter's folder.

    Attributes:
        name: of the benchmark's folder.
        results: folder of the logs.
        measurements: the measurements file; user.conf and README.md are in the same folder.
        compliance: folder of the compliance tests.
    """

    name: str
    scenario: str
    results: Path
    measurements: Path
    compliance: Path

    @property
    def readme(self) -> Path:
        """README.md of the result."""
        return self.measurements.with_name(README)

    @property
    def folders(self) -> set[Path]:
        """All folders of this result."""
        return {self.results, self.measurements.parent, self.compliance}


def home_of(submission: Submission, tree: Path) -> Path:
    """The folder of the submitter and division in `tree`."""
    return tree / submission.division / submission.submitter


def description_of(submission: Submission, home: Path) -> Path:
    """The system description."""
    return home / SYSTEMS / f"{submission.system}.json"


def places_of(submission: Submission, name: str, scenario: str, home: Path) -> Places:
    """Paths of the result of `scenario` under the benchmark name `name`; `home` is `<division>/<submitter>/`."""
    layout, fields = submission.rules.layout, {"system": submission.system, "benchmark": name, "scenario": scenario}
    return Places(
        name,
        scenario,
        results=home / RESULTS / submission.system / name / scenario,
        measurements=home / layout.measurements.format_map(fields),
        compliance=home / layout.compliance.format_map(fields),
    )


def source_of(submission: Submission, name: str, home: Path) -> Path:
    """Source folder of the benchmark `name`."""
    return home / submission.rules.layout.source / name / IMPLEMENTATION
