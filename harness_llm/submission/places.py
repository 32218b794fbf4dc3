"""Where the parts of a result stand, as the layout of its round has it."""

from dataclasses import dataclass
from pathlib import Path

from harness_llm.config.submission_names import Submission

README = "README.md"
RESULTS = "results"
DOCUMENTATION = "documentation"
PROFILE = f"{DOCUMENTATION}/profile.json"
"""Which runs a submitter's folder has; not at the root of the tree, where no content may be (submission_rules:410)."""
IMPLEMENTATION = "harness-llm"
"""<implementation_id>, the folder of the source below that of the benchmark (submission_rules:372)."""


@dataclass(frozen=True)
class Places:
    """The places of one result, below a submitter's folder.

    Attributes:
        name: the benchmark's folder.
        results: the folder of its logs.
        measurements: a file; user.conf and README.md stand beside it.
        compliance: the folder that holds those of the tests.
    """

    name: str
    scenario: str
    results: Path
    measurements: Path
    compliance: Path

    @property
    def readme(self) -> Path:
        """What says what was run."""
        return self.measurements.with_name(README)

    @property
    def folders(self) -> set[Path]:
        """All that belong to this result alone."""
        return {self.results, self.measurements.parent, self.compliance}


def places_of(submission: Submission, name: str, scenario: str, home: Path) -> Places:
    """The places of `scenario` under the name `name`, below `home`, `<division>/<submitter>/`."""
    layout, fields = submission.rules.layout, {"system": submission.system, "benchmark": name, "scenario": scenario}
    return Places(
        name,
        scenario,
        results=home / RESULTS / submission.system / name / scenario,
        measurements=home / layout.measurements.format_map(fields),
        compliance=home / layout.compliance.format_map(fields),
    )


def source_of(submission: Submission, name: str, home: Path) -> Path:
    """The folder of the program that made the results of `name`."""
    return home / submission.rules.layout.source / name / IMPLEMENTATION
