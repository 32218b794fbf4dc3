"""Measure the harness itself.

    python -m benchmarks                           all parts
    python -m benchmarks ceiling drain             selected parts
    python -m benchmarks offline --repeats 10 --seconds 60

Tables go to stderr; the last line on stdout is one JSON document. The exit code is 1 if a figure misses its target.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import (
    ceiling,
    drain,
    engine_statistics,
    front,
    growth,
    offline,
    pinned,
    probe,
    record_cost,
    search,
    server,
)
from harness_llm.errors import ConfigError, GateFailed, HarnessError
from harness_llm.hardware.machine import detect

LOG_WIDTH = 140  # of tables in a file
Found = Mapping[str, Any]


class Part(NamedTuple):
    """One measurement: description, default number and duration of runs, function, table, and check.

    Attributes:
        misses: figures that miss their targets; None without targets.
    """

    description: str
    repeats: int
    seconds: float
    run: Callable[[int, float, Path, Console], Found]
    table: Callable[[Found], Table]
    misses: Callable[[Found], list[str]] | None


PARTS = {
    "offline": Part(
        "Offline tokens/s against vllm.LLM.generate, pair by pair",
        10,
        60,
        lambda repeats, seconds, _, console: offline.run(repeats, seconds, console),
        offline.table,
        offline.misses,
    ),
    "server": Part(
        "p99 TTFT in Server against AsyncLLM driven directly, pair by pair",
        5,
        60,
        server.run,
        server.table,
        server.misses,
    ),
    "front": Part(
        "CPU time of vLLM's front end per sequence and step, and delay of a new query before the engine core",
        5,
        20,
        front.run,
        front.table,
        None,
    ),
    "ceiling": Part(
        "maximum rate of the harness, and its part of TTFT and TPOT, against LoadGen alone",
        3,
        20,
        lambda repeats, seconds, folder, console: ceiling.run(folder, repeats, seconds, console.print),
        ceiling.table,
        ceiling.misses,
    ),
    "records": Part(
        "cost of a run's records: time in the SUT's thread at the maximum Offline rate, and p99 TTFT in pairs",
        record_cost.PAIRS,
        20,
        lambda repeats, seconds, folder, console: record_cost.run(folder, repeats, seconds, console),
        record_cost.table,
        record_cost.misses,
    ),
    "statistics": Part(
        "Offline tokens/s of the demo with the engine's statistics against without, pair by pair",
        10,
        20,
        lambda repeats, seconds, _, console: engine_statistics.run(repeats, seconds, console),
        engine_statistics.table,
        None,
    ),
    "drain": Part(
        "idle share at the end of Offline, against a static split, in simulated time",
        15,
        drain.MIN_DURATION_S,
        lambda repeats, _, __, console: drain.measure(repeats, console.print),
        drain.table,
        drain.misses,
    ),
    "probe": Part(
        "duration and error of the probe for every configuration of the repository, in simulated time",
        1,
        probe.TARGET_S,
        lambda _, __, ___, console: probe.measure(console.print),
        probe.table,
        probe.misses,
    ),
    "search": Part(
        "target found by the search against the known capacity, in simulated time",
        1,
        drain.MIN_DURATION_S,
        lambda repeats, _, __, console: search.measure(repeats, console.print),
        search.table,
        search.misses,
    ),
    "pinned": Part(
        "two replicas on separate cores against one, Offline tokens/s",
        5,
        30,
        lambda repeats, seconds, _, console: pinned.run(repeats, seconds, console),
        pinned.table,
        None,  # LoadGen's process uses a part of the second core
    ),
    "growth": Part(
        "CPU time and memory of LoadGen's process from 1 to 72 replicas and from 10^3 to 10^6 queries",
        1,
        20,
        lambda _, seconds, folder, console: growth.run(folder, seconds, console.print),
        growth.table,
        growth.misses,
    ),
}


def _arguments() -> argparse.Namespace:
    about, *_ = (__doc__ or "").partition("\n")
    names = "\n".join(f"  {name:10}{part.description}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{about}\n\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="parts to measure; default: all")
    parser.add_argument("--repeats", type=int, help="number of runs or pairs of runs per part")
    parser.add_argument("--seconds", type=float, help="duration of a run")
    return parser.parse_args()


def run(arguments: argparse.Namespace, console: Console) -> list[str]:
    """Measure and report; return the figures that miss their targets."""
    if unknown := set(arguments.parts) - PARTS.keys():
        raise ConfigError(f"unknown part {min(unknown)}", expected=", ".join(PARTS))
    report: dict[str, Any] = {"machine": detect()}
    misses: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.parts or PARTS:
            part = PARTS[name]
            repeats, seconds = arguments.repeats or part.repeats, arguments.seconds or part.seconds
            report[name] = found = part.run(repeats, seconds, Path(folder), console)
            console.print(part.table(found))
            misses += part.misses(found) if part.misses else []
    sys.stdout.write(json.dumps(report | {"misses": misses}) + "\n")
    return misses


def main() -> None:
    """Run the benchmarks; report errors like the command line."""
    arguments = _arguments()
    try:
        if misses := run(arguments, Console(stderr=True, width=None if sys.stderr.isatty() else LOG_WIDTH)):
            raise GateFailed("figures miss their targets", found="\n".join(misses))
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
