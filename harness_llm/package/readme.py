"""The documents of the tree, rendered from what is in it and what the runs recorded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import yaml

from harness_llm.package.submission import Submission
from harness_llm.runs import Run

_TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("harness_llm.package"),
    autoescape=jinja2.select_autoescape(),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def write_tree_readme(tree: Path, submission: Submission) -> None:
    """README.md at the root: what this is, and whether it can be submitted."""
    results = sorted(path.relative_to(tree).parts for path in tree.glob("*/*/results/*/*/*") if path.is_dir())
    _render(
        "tree_README.md.j2",
        tree / "README.md",
        submission=submission,
        results=[
            {"division": d, "submitter": o, "system": s, "benchmark": b, "scenario": c} for d, o, _, s, b, c in results
        ],
    )


def write_source_readme(folder: Path, submission: Submission) -> None:
    """README.md of `src/<benchmark>/`."""
    entries = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    _render("src_README.md.j2", folder / "README.md", submission=submission, entries=entries)


def write_result_readme(folder: Path, submission: Submission, scenario: str, runs: Mapping[str, Run]) -> None:
    """README.md of one scenario: what was run, with what, and how to do it again."""
    records = {test: run.record for test, run in runs.items() if run.record}
    subject = next(iter(records.values())).subject
    _render(
        "result_README.md.j2",
        folder / "README.md",
        submission=submission,
        scenario=scenario,
        records=records,
        subject=yaml.safe_dump(subject, sort_keys=True, allow_unicode=True).strip(),
        digest=next(iter(records.values())).subject_digest,
    )


def _render(template: str, target: Path, **context: Any) -> None:
    target.write_text(_TEMPLATES.get_template(template).render(context))
