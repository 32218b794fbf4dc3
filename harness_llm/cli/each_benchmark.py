"""The benchmarks of one command, one after the other."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from harness_llm.errors import HarnessError
from harness_llm.pipeline.panel import Panel

Benchmark = TypeVar("Benchmark")


def each_benchmark(
    benchmarks: Sequence[Benchmark], do: Callable[[Benchmark], None], panel: Panel, *, stop_on_failure: bool = False
) -> None:
    """Call `do` with each benchmark, after the failure of another one too, unless `stop_on_failure`.

    Raises:
        HarnessError: the failure with the highest exit code; the others are printed.
    """
    failures: list[HarnessError] = []
    for benchmark in benchmarks:
        try:
            do(benchmark)
        except HarnessError as error:
            if stop_on_failure:
                raise
            failures.append(error)
    failures.sort(key=lambda failure: failure.exit_code)
    for failure in failures[:-1]:
        panel.say(f"error: {failure}")
    if failures:
        raise failures[-1]
