"""Stand-in submissions at smoke scale of every published benchmark in every round that has it: `make stand-ins`.

With the round's LoadGen, vLLM, compliance tests, and a check of the tree. Prints one line per submission; the exit code
is 1 if one of them failed.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness_llm.config.benchmark import benchmark_names, load_benchmark
from harness_llm.config.rules import load_round, round_names
from harness_llm.paths import Workspace

HARNESS = [str(Path(sys.executable).with_name("harness-llm"))]
SAMPLES = 512  # LoadGen needs about 460 for the confidence of a 99th percentile
NAMES = ["--company", "Acme", "--system-name", "stand-in-box"]


@dataclass(frozen=True)
class Done:
    """One submission: exit code, and findings of check by severity."""

    model: str
    round: str
    code: int
    seconds: float
    findings: Counter[str]
    text: str

    @property
    def good(self) -> bool:
        """Whether the tree has no errors; findings of scale are allowed."""
        return self.code == 0 and not self.findings["error"]


def pairs(models: list[str]) -> Iterator[tuple[str, str]]:
    """Yield every benchmark with every round that has it."""
    workspace = Workspace()
    for model in models or benchmark_names(workspace):
        benchmark = load_benchmark(model, workspace)
        for name in round_names():
            if benchmark.preparer == "published" and load_round(name).benchmarks.keys() & set(benchmark.variants):
                yield model, name


def submit(model: str, round_name: str) -> Done:
    """Run one submission and check its tree."""
    begin = time.monotonic()
    words = ["submit", "--stand-in", "--model", model, "--round", round_name, "--total-sample-count", str(SAMPLES)]
    done = subprocess.run([*HARNESS, *words, *NAMES], capture_output=True, text=True, check=False)
    findings: Counter[str] = Counter()
    if done.returncode == 0:
        tree = done.stdout.splitlines()[0]
        checked = subprocess.run(
            [*HARNESS, "check", tree, "--round", round_name, "--json"], capture_output=True, text=True, check=False
        )
        findings.update(finding["severity"] for finding in json.loads(checked.stdout)["findings"])
    return Done(model, round_name, done.returncode, time.monotonic() - begin, findings, done.stderr)


def main() -> None:
    """Run all models, or the given ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="default: all published benchmarks")
    parser.add_argument("--logs", type=Path, help="folder for the output of each submission")
    arguments = parser.parse_args()
    table = Table("benchmark", "round", "exit", "seconds", "errors", "warnings", "scale")
    all_good = True
    for model, round_name in pairs(arguments.models):
        done = submit(model, round_name)
        all_good &= done.good
        counts = (str(done.findings[severity]) for severity in ("error", "warning", "scale"))
        table.add_row(model, round_name, str(done.code), f"{done.seconds:.0f}", *counts)
        sys.stderr.write(f"{model} {round_name}: exit {done.code}, {done.seconds:.0f} s, {dict(done.findings)}\n")
        if arguments.logs:
            arguments.logs.mkdir(parents=True, exist_ok=True)
            (arguments.logs / f"{model}-{round_name}.log").write_text(done.text)
    Console().print(table)
    sys.exit(0 if all_good else 1)


if __name__ == "__main__":
    main()
