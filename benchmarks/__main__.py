"""Measure the harness itself.

    python -m benchmarks                           all of it
    python -m benchmarks ceiling drain             some of it
    python -m benchmarks offline --repeats 10 --seconds 60

Tables go to stderr; the last line on stdout is one JSON document. A figure below what is wanted ends with 1.
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

from benchmarks import ceiling, drain, front, growth, offline, pinned, probe, server
from harness_llm.errors import ConfigError, GateFailed, HarnessError
from harness_llm.hardware.machine import detect

LOG_WIDTH = 140  # in a file a table need not fit a terminal
Found = Mapping[str, Any]


class Part(NamedTuple):
    """One measurement: what it is, how often and how long unless told otherwise, and what is made of it.

    Attributes:
        misses: what is not as wanted; None where nothing is.
    """

    says: str
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
        "Server's p99 TTFT against AsyncLLM driven directly, pair by pair",
        5,
        60,
        server.run,
        server.table,
        server.misses,
    ),
    "front": Part(
        "vLLM's front end per sequence and step, and a new query's wait for the engine core",
        5,
        20,
        front.run,
        front.table,
        None,
    ),
    "ceiling": Part(
        "what the harness carries and adds to TTFT and TPOT, beside LoadGen alone",
        3,
        20,
        lambda repeats, seconds, folder, console: ceiling.run(folder, repeats, seconds, console.print),
        ceiling.table,
        ceiling.misses,
    ),
    "drain": Part(
        "idle share at the end of Offline, beside a static split, in simulated time",
        15,
        drain.LEAST_S,
        lambda repeats, _, __, console: drain.measure(repeats, console.print),
        drain.table,
        drain.misses,
    ),
    "probe": Part(
        "time and error of the probe on every shipped configuration, in simulated time",
        1,
        probe.WANTED_S,
        lambda _, __, ___, console: probe.measure(console.print),
        probe.table,
        probe.misses,
    ),
    "pinned": Part(
        "two replicas on cores apart against one, Offline tokens/s",
        5,
        30,
        lambda repeats, seconds, _, console: pinned.run(repeats, seconds, console),
        pinned.table,
        None,  # LoadGen's process needs a part of the second core
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
    names = "\n".join(f"  {name:10}{part.says}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=f"{about}\n\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to measure; all by default")
    parser.add_argument("--repeats", type=int, help="of each, or pairs of runs")
    parser.add_argument("--seconds", type=float, help="length of a run")
    return parser.parse_args()


def run(arguments: argparse.Namespace, console: Console) -> list[str]:
    """Measure and report; returns what is not as wanted."""
    if unknown := set(arguments.parts) - PARTS.keys():
        raise ConfigError(f"there is no part {min(unknown)}", expected=", ".join(PARTS))
    report: dict[str, Any] = {"machine": detect()}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.parts or PARTS:
            part = PARTS[name]
            repeats, seconds = arguments.repeats or part.repeats, arguments.seconds or part.seconds
            report[name] = found = part.run(repeats, seconds, Path(folder), console)
            console.print(part.table(found))
            wrong += part.misses(found) if part.misses else []
    sys.stdout.write(json.dumps(report | {"misses": wrong}) + "\n")
    return wrong


def main() -> None:
    """Run the bench; errors are told as the command line tells them."""
    arguments = _arguments()
    try:
        if wrong := run(arguments, Console(stderr=True, width=None if sys.stderr.isatty() else LOG_WIDTH)):
            raise GateFailed("not every figure is as wanted", found="\n".join(wrong))
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
