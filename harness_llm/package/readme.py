"""The documents of the tree, rendered from what is in it and what the runs recorded."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from harness_llm.package.papers import Papers
from harness_llm.package.places import DOCUMENTATION, IMPLEMENTATION, README, RESULTS, Places
from harness_llm.package.rendering import render
from harness_llm.package.submission import Submission
from harness_llm.runs import Run, RunRecord

_ANY = {"system": "<system>", "benchmark": "<benchmark>", "scenario": "<scenario>"}
_MADE = {
    "published": "A gated checkpoint wants HF_TOKEN, the token of an account that was given access.",
    "demo": "It makes model and data itself.",
    "stand-in": "It makes model and data itself.",
}
"""What is to be said of model and data, by who prepares the benchmark."""


def write_home_readme(home: Path, submission: Submission) -> None:
    """documentation/README.md of the submitter's folder `home`: its results, and whether they can be submitted."""
    results = sorted(path.relative_to(home / RESULTS).parts for path in home.glob(f"{RESULTS}/*/*/*") if path.is_dir())
    text = render(
        "home_README.md.j2",
        submission=submission,
        described=PurePath(submission.rules.layout.measurements.format_map(_ANY)).with_name(README),
        results=[{"system": s, "benchmark": b, "scenario": c} for s, b, c in results],
    )
    (home / DOCUMENTATION / README).write_text(text)


def write_source_readme(folder: Path, submission: Submission) -> None:
    """README.md beside the program."""
    entries = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    (folder / README).write_text(render("src_README.md.j2", submission=submission, entries=entries))


def write_pointer_readme(file: Path, submission: Submission, variant: str) -> None:
    """README.md in place of the program, where the same one stands for another name."""
    text = render("pointer_README.md.j2", submission=submission, variant=variant, implementation=IMPLEMENTATION)
    file.write_text(text)


def repeating(submission: Submission, records: Sequence[RunRecord], quantization: Mapping[str, Any]) -> Iterator[str]:
    """The command lines that repeat runs of one subject, from the source to the tree."""
    benchmark, checkpoint = submission.benchmark, submission.benchmark.checkpoint
    yield "make setup"
    programs = _programs(records[0].subject)
    inherited: dict[str, str] = records[0].subject.get("inherited", {})
    yield from (f"export {name}={shlex.quote(value)}" for name, value in inherited.items())
    if benchmark.preparer == "published":
        yield f"{programs}/harness-llm download --model {benchmark.name}"
        if benchmark.dataset.made_by:
            yield f"{programs}/{benchmark.dataset.made_by}"
        recipe = quantization.get("recipe", {}).get("name")
        if recipe and checkpoint.original != checkpoint.quantized:
            yield f"{programs}/harness-llm quantize --model {benchmark.name} --recipe {recipe}"
    yield from dict.fromkeys(f"{programs}/{record.command} --company {submission.submitter}" for record in records)


def _programs(subject: Mapping[str, Any]) -> str:
    """The folder of harness-llm, made by `make setup`: of the build of vLLM that the runs used."""
    return ".venv-cuda/bin" if "vllm" in subject.get("packages", {}) and not subject.get("image") else ".venv/bin"


def write_result_readme(
    places: Places,
    submission: Submission,
    names: Sequence[str],
    runs: Mapping[str, Run],
    papers: Papers,
) -> None:
    """README.md of one scenario: what was run, with what, and how to do it again; the runs stand under all `names`."""
    records = {test: run.record for test, run in runs.items() if run.record}
    outputs = {test: papers.outputs[run.path] for test, run in runs.items() if run.path in papers.outputs}
    subject = next(iter(records.values())).subject
    text = render(
        "result_README.md.j2",
        submission=submission,
        name=places.name,
        implementation=IMPLEMENTATION,
        others=[name for name in names if name != places.name],
        scenario=places.scenario,
        records=records,
        outputs=outputs,
        verdicts={test: facts.verdict for test, facts in submission.rules.compliance.items()},
        commands=repeating(submission, list(records.values()), papers.quantization.record),
        made=_MADE[submission.benchmark.preparer],
        subject=yaml.safe_dump(subject, sort_keys=True, allow_unicode=True).strip(),
        digest=next(iter(records.values())).subject_digest,
    )
    places.readme.write_text(text)
