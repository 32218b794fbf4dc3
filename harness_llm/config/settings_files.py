"""Files with the engine settings of a benchmark: models/<benchmark>/<gpu>.yaml and <scenario>_<gpu>.yaml."""

import difflib
from collections.abc import Collection, Sequence
from pathlib import Path

from harness_llm.config.benchmark import Benchmark
from harness_llm.config.commands import typed
from harness_llm.config.stand_in import without_accelerator
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import NO_ACCELERATOR


def settings_files(root: Path, benchmark: Benchmark, scenario: str, gpu: str) -> list[Path]:
    """Return the existing settings files of `scenario` on `gpu`; later ones have priority.

    Args:
        root: the folder models/.

    Raises:
        ConfigError: the benchmark has no settings file for `gpu`.
    """
    folder = root / benchmark.settings
    scenario = benchmark.engine_scenarios.get(scenario, scenario)
    own = [folder / f"{gpu}.yaml", folder / f"{scenario.lower()}_{gpu}.yaml"]
    if not any(file.is_file() for file in own):
        raise _missing(benchmark, f" {scenario} on {gpu}", own, _known(folder), _another(gpu, _known(folder)))
    return [root / "defaults.yaml", *(file for file in (folder / "engine.yaml", *own) if file.is_file())]


def require_settings(root: Path, benchmark: Benchmark, gpu: str, *, rehearsed: bool) -> None:
    """Require settings files for `gpu`, of some scenario.

    Args:
        root: the folder models/.
        rehearsed: whether the profile is a rehearsal, which uses the settings of GPUs.

    Raises:
        ConfigError: the benchmark has none.
    """
    folder = root / benchmark.settings
    if gpu in (known := _known(folder)):
        return
    instead = without_accelerator(benchmark, rehearsed=rehearsed)
    hint = f"without accelerators: {instead}" if gpu == NO_ACCELERATOR else _another(gpu, known)
    raise _missing(benchmark, f" on {gpu}", [folder / f"{gpu}.yaml"], known, hint)


def _known(folder: Path) -> set[str]:
    """Return the GPU_NAMEs of the settings files."""
    return {file.stem.rpartition("_")[2] for file in folder.glob("*.yaml")} - {"benchmark", "engine"}


def _another(gpu: str, known: Collection[str]) -> str:
    others = difflib.get_close_matches(gpu, sorted({*known} - {gpu}), n=1, cutoff=0)
    return "".join(f"{typed(gpu=name)}, or copy the files of {name} for {gpu}" for name in others)


def _missing(benchmark: Benchmark, what: str, files: Sequence[Path], known: Collection[str], hint: str) -> ConfigError:
    return ConfigError(
        f"missing settings for {benchmark.settings}{what}",
        where=" or ".join(map(str, files)),
        expected=f"a GPU with settings: {', '.join(sorted(known))}",
        hint=hint,
    )
