"""`harness-llm download`: what a benchmark needs and this program does not make."""

import sys
from collections.abc import Sequence
from pathlib import Path

from harness_llm.config.assets import Report
from harness_llm.config.benchmark import Benchmark, Download, load_benchmark
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace
from harness_llm.prepare.downloads.fetch import fetch


def download(model: str, parts: Sequence[str], report: Report) -> None:
    """Bring `parts` of `model`, all of them if none is named, and say on standard output where each lies.

    Raises:
        ConfigError: there is no such benchmark or part.
        HarnessError: as `fetch`.
    """
    workspace = Workspace()
    for wanted in _chosen(load_benchmark(model, workspace), parts):
        target = root_of(wanted, workspace) / wanted.folder
        fetch(wanted, target, report)
        sys.stdout.write(f"{wanted.part}: {target}\n")


def root_of(wanted: Download, workspace: Workspace) -> Path:
    """The folder that the download's own folder is in."""
    return workspace.models if wanted.of_models else workspace.data


def _chosen(benchmark: Benchmark, parts: Sequence[str]) -> list[Download]:
    where = f"downloads of models/{benchmark.name}/benchmark.yaml"
    there = dict.fromkeys(wanted.part for wanted in benchmark.downloads)
    if not there:
        raise ConfigError(
            f"{benchmark.name} has nothing to download",
            where=where,
            hint=f"harness-llm submit --model {benchmark.name} makes all it needs",
        )
    if unknown := [part for part in parts if part not in there]:
        raise ConfigError(
            f"{benchmark.name} has no such part to download",
            where=where,
            expected=", ".join(there),
            found=", ".join(unknown),
        )
    return [wanted for wanted in benchmark.downloads if not parts or wanted.part in parts]
