"""Packages of runs that tests write."""

from pathlib import Path
from typing import Any

import pytest
from runs import BENCHMARK, short_program
from submissions import official, submission_of

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Benchmark, load_benchmark
from harness_llm.config.inference_checkout import CHECKOUT_VARIABLE
from harness_llm.config.rules.rounds import load_round
from harness_llm.config.submission_names import Submission
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.runs.record import find_runs
from harness_llm.runs.selection import Wanted, select
from harness_llm.submission.package import Package, package

RULES = load_round("v6.1")
DEMO = load_benchmark(BENCHMARK, Workspace(CHECKOUT))
LLAMA = official("llama2-70b", "llama2-70b-99.9", "llama2-70b-99")
TESTS = ("performance", "accuracy", "TEST06")


def submission(benchmark: Benchmark = DEMO, **changes: Any) -> Submission:
    return submission_of(benchmark, **{"rules": RULES} | changes)


def make_workspace(root: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace without official scripts, with a short program."""
    short_program(monkeypatch)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(root))
    monkeypatch.delenv(CHECKOUT_VARIABLE, raising=False)
    benchmark = root / "models" / BENCHMARK / "benchmark.yaml"
    benchmark.parent.mkdir(parents=True)
    benchmark.write_bytes((CHECKOUT / "models" / BENCHMARK / "benchmark.yaml").read_bytes())
    (root / "code").mkdir()
    (root / "code" / "user_cpu.conf").write_text("*.Offline.target_qps = 10\n")
    return Workspace(root)


def assets(workspace: Workspace) -> Assets:
    """A checkpoint and no data sets, which official scripts alone need."""
    folder = checkpoint(workspace)
    return Assets(folder, folder, {}, folder)


def checkpoint(workspace: Workspace) -> Path:
    """A checkpoint without a quantization record."""
    folder = workspace.models / "some"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    return folder


def pack(workspace: Workspace, *scenarios: str, **changes: Any) -> Package:
    what = submission(**changes)
    tests = ("performance", "accuracy", *next(iter(what.variants.values())).compliance)
    wanted = Wanted(what.benchmark.name, what.profile, what.rules.round, what.division, newest=True)
    runs = find_runs(workspace.logs, what.system)
    selection = select(runs, scenarios or ("Offline",), tests, wanted)
    return package(what, selection, workspace, assets(workspace))


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def results(tree: Path) -> set[str]:
    """The folders of all results in a tree of v6."""
    return {path.relative_to(tree).as_posix() for path in tree.glob("*/*/results/*/*/*")}
