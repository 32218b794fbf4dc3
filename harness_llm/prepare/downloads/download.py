"""`harness-llm download`: download the parts of a benchmark."""

import sys
from collections.abc import Sequence
from pathlib import Path

from harness_llm.config.assets import Report
from harness_llm.config.benchmark import Benchmark, Download, load_benchmark
from harness_llm.config.commands import command
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace
from harness_llm.prepare.downloads.fetch import fetch


def download(model: str, parts: Sequence[str], report: Report) -> None:
    """Download `parts` of `model` (default: all) and print their folders.

    Raises:
        ConfigError: unknown benchmark or part.
        HarnessError: from `fetch`.
    """
    workspace = Workspace()
    for source in _choose(load_benchmark(model, workspace), parts):
        target = root_of(source, workspace) / source.folder
        fetch(source, target, report)
        sys.stdout.write(f"{source.part}: {target}\n")


def root_of(source: Download, workspace: Workspace) -> Path:
    """Return the folder of models or data that contains the download's folder."""
    return workspace.models if source.of_models else workspace.data


def _choose(benchmark: Benchmark, parts: Sequence[str]) -> list[Download]:
    where = f"downloads of models/{benchmark.name}/benchmark.yaml"
    known = dict.fromkeys(source.part for source in benchmark.downloads)
    if not known:
        raise ConfigError(
            f"no downloads for {benchmark.name}",
            where=where,
            hint=f"{command('submit', model=benchmark.name)} makes model and data",
        )
    if unknown := [part for part in parts if part not in known]:
        raise ConfigError(
            f"unknown part of {benchmark.name}", where=where, expected=", ".join(known), found=", ".join(unknown)
        )
    return [source for source in benchmark.downloads if not parts or source.part in parts]
