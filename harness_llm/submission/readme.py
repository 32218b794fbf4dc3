"""README files of the tree, rendered from its content and the records of the runs."""

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from harness_llm.config.commands import command_line
from harness_llm.config.options import arguments
from harness_llm.config.submission_names import Submission
from harness_llm.fileio import parse_yaml, read_text
from harness_llm.runs.record import Run, RunRecord
from harness_llm.submission.documents import Documents
from harness_llm.submission.packed_source import PackedSource
from harness_llm.submission.places import DOCUMENTATION, IMPLEMENTATION, README, RESULTS, Places
from harness_llm.submission.templates import render

_FINGERPRINT = re.compile(r"^## Fingerprint$.*?^```yaml$(.*?)^```$", re.MULTILINE | re.DOTALL)
_OTHERS = re.compile(r"^The same runs are also packaged as (.*)\.\n", re.MULTILINE)
_ANY = {"system": "<system>", "benchmark": "<benchmark>", "scenario": "<scenario>"}
_PREPARATION = {
    "published": "Gated checkpoints require HF_TOKEN, the token of an account that has access.",
    "demo": "It also creates model and data.",
    "stand-in": "It also creates model and data.",
}
"""Note on model and data, by the preparer of the benchmark."""


def write_home_readme(home: Path, submission: Submission) -> None:
    """Write documentation/README.md of the submitter's folder `home`."""
    results = sorted(path.relative_to(home / RESULTS).parts for path in home.glob(f"{RESULTS}/*/*/*") if path.is_dir())
    text = render(
        "home_README.md.j2",
        submission=submission,
        described=PurePath(submission.rules.layout.measurements.format_map(_ANY)).with_name(README),
        results=[{"system": s, "benchmark": b, "scenario": c} for s, b, c in results],
    )
    (home / DOCUMENTATION / README).write_text(text)


def write_source_readme(folder: Path, submission: Submission, source: PackedSource) -> None:
    """Write README.md of the source folder."""
    entries = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())
    (folder / README).write_text(render("src_README.md.j2", submission=submission, entries=entries, source=source))


def write_pointer_readme(file: Path, submission: Submission, variant: str) -> None:
    """Write README.md of a source folder that refers to the folder of another benchmark name."""
    text = render("pointer_README.md.j2", submission=submission, variant=variant, implementation=IMPLEMENTATION)
    file.write_text(text)


def repeating(
    submission: Submission, records: Sequence[RunRecord], quantization: Mapping[str, Any], inferred: str = ""
) -> Iterator[str]:
    """Command lines that repeat runs of one fingerprint and package them, also as the scenario `inferred`."""
    benchmark, checkpoint = submission.benchmark, submission.benchmark.checkpoint
    yield "make setup"
    programs = _programs(records[0].fingerprint)
    inherited: dict[str, str] = records[0].fingerprint.get("inherited", {})
    yield from (f"export {name}={shlex.quote(value)}" for name, value in inherited.items())
    if benchmark.preparer == "published":
        yield f"{programs}/{command_line('download', model=benchmark.name)}"
        if benchmark.dataset.made_by:
            yield f"{programs}/{benchmark.dataset.made_by}"
        recipe = quantization.get("recipe", {}).get("name")
        if recipe and checkpoint.original != checkpoint.quantized:
            yield f"{programs}/{command_line('quantize', model=benchmark.name, recipe=recipe)}"
    commands = dict.fromkeys(_inferring(record, inferred) if inferred else record.command for record in records)
    company = shlex.join(arguments({"company": submission.submitter}))
    yield from (f"{programs}/{command} {company}" for command in commands)


def _inferring(record: RunRecord, scenario: str) -> str:
    """The command of a run, which names only the measured scenario, with `scenario` inferred from that."""
    measured = shlex.join(arguments({"scenarios": record.scenario}))
    return record.command.replace(measured, f"{measured},{scenario}={record.scenario}")


def _programs(fingerprint: Mapping[str, Any]) -> str:
    """Folder of the harness-llm program that `make setup` installs, with the vLLM build of the runs."""
    cuda = "vllm" in fingerprint.get("packages", {}) and not fingerprint.get("image")
    return ".venv-cuda/bin" if cuda else ".venv/bin"


def write_result_readme(
    places: Places,
    submission: Submission,
    names: Sequence[str],
    runs: Mapping[str, Run],
    documents: Documents,
) -> None:
    """Write README.md of one scenario; `names` are all benchmark names that its runs are packaged as."""
    records = {test: run.record for test, run in runs.items() if run.record}
    outputs = {test: documents.outputs[run.path] for test, run in runs.items() if run.path in documents.outputs}
    fingerprint = next(iter(records.values())).fingerprint
    measured = next(iter(runs.values())).run_key.scenario
    text = render(
        "result_README.md.j2",
        submission=submission,
        name=places.name,
        implementation=IMPLEMENTATION,
        others=[name for name in names if name != places.name],
        scenario=places.scenario,
        measured=measured,
        records=records,
        outputs=outputs,
        verdicts={test: facts.verdict for test, facts in submission.rules.compliance.items()},
        commands=repeating(
            submission,
            list(records.values()),
            documents.quantization.record,
            inferred="" if measured == places.scenario else places.scenario,
        ),
        preparation=_PREPARATION[submission.benchmark.preparer],
        fingerprint=yaml.safe_dump(fingerprint, sort_keys=True, allow_unicode=True).strip(),
        digest=next(iter(records.values())).fingerprint_digest,
    )
    places.readme.write_text(text)


def keep_other_names(readme: Path, names: Collection[str]) -> None:
    """Keep only `names` among the other names that a result says it is packaged as."""
    text = read_text(readme) if readme.is_file() else ""
    if found := _OTHERS.search(text):
        kept = ", ".join(name for name in found[1].split(", ") if name in names)
        readme.write_text(text.replace(found[0], found[0].replace(found[1], kept) if kept else ""))


def read_fingerprint(readme: Path) -> dict[str, Any]:
    """The fingerprint in a README.md of `write_result_readme`; empty without one.

    Raises:
        ConfigError: the fingerprint is no longer YAML.
    """
    found = _FINGERPRINT.search(read_text(readme)) if readme.is_file() else None
    fingerprint: dict[str, Any] = parse_yaml(found[1], str(readme)) if found else {}
    return fingerprint
