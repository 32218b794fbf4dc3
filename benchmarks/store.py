"""Time to open a token store of OpenOrca's size, and its memory when many processes read it.

    python -m benchmarks.store --processes 8

Every process opens the store, reads all prompts, and keeps them mapped until all processes have read them. Its memory
is the growth of its proportional set size (Pss of /proc/self/smaps_rollup), in which a page that n processes share
counts 1/n. The last line on stdout is one JSON document.
"""

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from harness_llm.protocol.token_store import open_store, write_store

SAMPLES = 24_576
MEAN_PROMPT = 300
MEAN_TARGET = 1200
MIB = 2**20


@dataclass(frozen=True)
class Reading:
    """Measurements of one process; `targets_s` is the time to read all reference texts, which only the scorer does."""

    open_s: float
    read_s: float
    targets_s: float
    pss_mib: float


def write_openorca_sized(path: Path) -> float:
    """Write a store of prompts of 300 ids and texts of 1200 characters on average; return its size in MiB."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, 32_000, length) for length in rng.integers(1, 2 * MEAN_PROMPT, SAMPLES)]
    letters = rng.integers(97, 123, 2 * MEAN_TARGET, dtype=np.uint8).tobytes().decode()
    write_store(path, prompts, [letters[:length] for length in rng.integers(1, 2 * MEAN_TARGET, SAMPLES)])
    return sum(file.stat().st_size for file in path.iterdir()) / MIB


def read(path: Path, barrier: Barrier) -> Reading:
    """Open and read the store at `path`, in step with the other processes."""
    barrier.wait()
    before = _pss()
    barrier.wait()  # no process maps the store before all have read their size
    begin = time.perf_counter()
    store = open_store(path)
    opened = time.perf_counter()
    total = sum(int(store.prompt(i).sum()) for i in range(len(store)))
    done = time.perf_counter()
    barrier.wait()
    pss = _pss() - before
    barrier.wait()
    texts = time.perf_counter()
    letters = sum(map(len, store.targets()))
    if not total or not letters:
        raise RuntimeError("the store is empty")
    return Reading(opened - begin, done - opened, time.perf_counter() - texts, pss / MIB)


def _pss() -> int:
    """Return the proportional set size in bytes."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def measure(path: Path, processes: int) -> list[Reading]:
    """Measure `processes` processes that read the store at once."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(processes) as pool:
        barrier = manager.Barrier(processes)
        return pool.starmap(read, [(path, barrier)] * processes, chunksize=1)


def _row(readings: Sequence[Reading], size: float) -> str:
    slowest = Reading(*(max(values) for values in zip(*(asdict(r).values() for r in readings), strict=True)))
    spans = {"open": slowest.open_s, "prompts": slowest.read_s, "texts": slowest.targets_s}
    times = ", ".join(f"{name} {span * 1000:.1f} ms" for name, span in spans.items())
    together = sum(reading.pss_mib for reading in readings)
    return f"{len(readings):>3} processes: {times}; prompts take {together:.1f} MiB in all; the store has {size:.1f}"


def main() -> None:
    """Measure one process, then several."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8, help="number of concurrent readers (default %(default)s)")
    processes = parser.parse_args().processes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "openorca.store"
        size = write_openorca_sized(path)
        results = {count: measure(path, count) for count in (1, processes)}
    for readings in results.values():
        sys.stderr.write(_row(readings, size) + "\n")
    report = {count: [asdict(reading) for reading in readings] for count, readings in results.items()}
    sys.stdout.write(json.dumps({"size_mib": size, "readings": report}) + "\n")


if __name__ == "__main__":
    main()
