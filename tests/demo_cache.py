"""The demo's assets for tests: made once per checkout and recipe, and shared by all workers and sessions.

The folder's name is a digest of everything that decides what training and quantization make.
"""

import fcntl
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import harness_llm.prepare.demo
import harness_llm.prepare.quantize
from harness_llm.config.assets import Assets, prepare
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.profile import load_profile
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.preparation import preparation_of

CACHE = CHECKOUT / "build" / "test-assets"
BENCHMARK = "demo"
PROFILE = "smoke"


def demo_assets() -> Assets:
    """Return the assets; the first caller makes them while the others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        workspace = Workspace(CACHE / recipe_digest())
        if not workspace.root.exists():
            _remove_others()
            shutil.copytree(CHECKOUT / "models", workspace.benchmarks)
        benchmark = load_benchmark(BENCHMARK, workspace)
        samples = load_profile(PROFILE, workspace).sample_count(benchmark.dataset.of("accuracy").samples)
        return prepare(preparation_of(benchmark, workspace, samples), lambda *_: None)


def recipe_digest() -> str:
    """Return the digest of the code, settings and packages that the assets are made with."""
    digest = hashlib.sha256()
    for file in _sources():
        digest.update(f"{file.relative_to(CHECKOUT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _sources() -> Iterator[Path]:
    for package in (harness_llm.prepare.demo, harness_llm.prepare.quantize):
        yield from sorted(Path(package.__path__[0]).glob("*.py"))
    yield from sorted((CHECKOUT / "models" / BENCHMARK).glob("*.yaml"))
    yield CHECKOUT / "models" / "quantization.yaml"
    yield from (CHECKOUT / "setup" / "requirements" / f"{layer}.txt" for layer in ("cpu", "quantize"))


def _remove_others() -> None:
    for folder in CACHE.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
