"""Provenance of the engine settings, and the table of docs that follows from it.

python tests/provenance.py     writes the table
"""

import itertools
import sys
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from harness_llm.config.benchmark import Benchmark, benchmark_names, load_benchmark
from harness_llm.config.engine_config import PROVENANCE
from harness_llm.config.rules import load_round, round_names
from harness_llm.config.settings_files import settings_files
from harness_llm.fileio import read_yaml
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.paths import CHECKOUT, Workspace

WORKSPACE = Workspace(CHECKOUT)
DOCUMENT = CHECKOUT / "docs" / "supported.md"
BEGIN, END = "<!-- settings: tests/provenance.py -->\n", "<!-- /settings -->\n"


class Provenance(BaseModel):
    """Where the values of a settings file come from.

    Attributes:
        kind: `published` for this GPU with vLLM, under the same names; `translated` from a published result on this GPU
            with other argument names, another engine or other weights; `derived` from another GPU or benchmark.
        source: round, submitter, engine and path in the published tree, or the rule of derivation.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["published", "translated", "derived"]
    source: str = Field(min_length=10)


def scenarios_of(benchmark: Benchmark) -> list[str]:
    """Return the scenarios that any round has for `benchmark`, in any category, in the order of the rounds."""
    rounds = [load_round(name).benchmarks for name in round_names()]
    found = [rules[v] for rules in rounds for v in benchmark.variants if v in rules]
    categories = [category for rules in found for category in rules.scenarios.values()]
    return list(dict.fromkeys(s for category in categories for s in (*category.required, *category.optional)))


def gpus_of(benchmark: Benchmark) -> set[str]:
    """Return the GPU_NAMEs with settings for `benchmark`: `<gpu>.yaml` and `<scenario>_<gpu>.yaml`."""
    stems = [file.stem for file in (WORKSPACE.benchmarks / benchmark.settings).glob("*.yaml")]
    return {stem.rpartition("_")[2] for stem in stems} - {"benchmark", "engine"}


def provenance_of(benchmark: Benchmark, scenario: str, gpu: str) -> Provenance:
    """Return the provenance of the last settings file that states one."""
    contents = [read_yaml(file) or {} for file in settings_files(WORKSPACE.benchmarks, benchmark, scenario, gpu)]
    return Provenance.model_validate([content[PROVENANCE] for content in contents if PROVENANCE in content][-1])


def table() -> str:
    """Return the table of docs/supported.md: a row for each GPU_NAME, a column for each folder of settings."""
    every = [load_benchmark(name, WORKSPACE) for name in benchmark_names(WORKSPACE)]
    benchmarks = [b for b in every if b.preparer == "published" and b.name == b.settings]
    gpus = sorted({gpu for b in benchmarks for gpu in gpus_of(b)} - {NO_ACCELERATOR})
    rows = [["GPU_NAME", *(b.name for b in benchmarks)], ["---"] * (len(benchmarks) + 1)]
    rows += [[gpu, *(_run_key(b, gpu) if gpu in gpus_of(b) else "" for b in benchmarks)] for gpu in gpus]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _run_key(benchmark: Benchmark, gpu: str) -> str:
    kinds = {scenario: provenance_of(benchmark, scenario, gpu).kind for scenario in scenarios_of(benchmark)}
    if len(set(kinds.values())) == 1:
        return next(iter(kinds.values()))
    groups = itertools.groupby(sorted(kinds, key=lambda s: kinds[s]), key=lambda s: kinds[s])
    return "; ".join(f"{kind}: {', '.join(scenarios)}" for kind, scenarios in groups)


def with_table(text: str) -> str:
    """Return docs/supported.md with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def main(document: Path = DOCUMENT) -> None:
    """Write the table to `document`."""
    document.write_text(with_table(document.read_text()))


if __name__ == "__main__":
    sys.exit(main())
