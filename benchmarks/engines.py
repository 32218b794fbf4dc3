"""The demo with `vllm serve` (ENGINE=openai) against ENGINE=vllm: answers, ROUGE and tokens/s.

    python -m benchmarks.engines --alone 200 --loaded 2048

Both replica pools answer the same prompts, first one at a time, then as many at once as the engine allows. One at a
time, every answer must be equal, token for token. Under load, ROUGE may differ by 0.2, because batches round
differently; the exit code is 1 for a larger difference. The table goes to stderr; the last line on stdout is one JSON
document.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from harness_llm.config.assets import Assets, prepare
from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.errors import GateFailed, HarnessError, RunFailed
from harness_llm.evaluate.decoding import decoder
from harness_llm.evaluate.score import score_answers
from harness_llm.hardware.device_lock import hold
from harness_llm.hardware.machine import detect
from harness_llm.loadgen.health import HealthMonitor
from harness_llm.loadgen.replica_client import ReplicaClient
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline
from harness_llm.protocol.counters import Counters, growth
from harness_llm.protocol.mailbox import Mailbox
from harness_llm.protocol.messages import Endpoint
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.local import start_pool
from harness_llm.replicas.pool import ReplicaPool

COMMAND = "python -m benchmarks.engines"
ENGINES = ("vllm", "openai")
MAX_ROUGE_DIFFERENCE = 0.2
ROUGE = ("ROUGE1", "ROUGE2", "ROUGEL")
OPTIONS = Options(
    system_name="bench-engines",
    model="demo",
    scenarios=("Offline",),
    profile="smoke",
    set=("harness_config.replicas=1",),
)
PATIENCE_MS = 1000
PATIENCE_S = 60.0

_generations = itertools.count(1)


@dataclass(frozen=True)
class Pass:
    """Answers to the first prompts of the data set, in order, and their duration."""

    answers: list[list[int]]
    seconds: float
    counted: Counters | None

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second, including end-of-sequence tokens."""
        return sum(map(len, self.answers)) / self.seconds


@dataclass(frozen=True)
class Served:
    """Results of one engine: one prompt at a time, and under load."""

    alone: Pass
    loaded: Pass
    scores: dict[str, float]


@dataclass(frozen=True)
class Comparison:
    """Comparison of two engines.

    Attributes:
        same_alone: answers that are equal token for token, one prompt at a time.
        differing_loaded: share of different answers under load.
        rouge_difference: greatest difference of a ROUGE score, in points of 100.
    """

    alone: int
    same_alone: int
    loaded: int
    differing_loaded: float
    rouge_difference: float

    @property
    def good(self) -> bool:
        """Whether the engines agree within the limits."""
        return self.same_alone == self.alone and self.rouge_difference <= MAX_ROUGE_DIFFERENCE


def compare(one: Served, other: Served) -> Comparison:
    """Compare answers and scores of two engines."""
    same = [a == b for a, b in zip(one.alone.answers, other.alone.answers, strict=True)]
    differing = [a != b for a, b in zip(one.loaded.answers, other.loaded.answers, strict=True)]
    return Comparison(
        alone=len(same),
        same_alone=sum(same),
        loaded=len(differing),
        differing_loaded=sum(differing) / len(differing),
        rouge_difference=max(abs(one.scores[name] - other.scores[name]) for name in ROUGE),
    )


def _raise_failure(endpoint: Endpoint, cause: str, _: int) -> None:
    raise RunFailed("a replica failed", where=endpoint.address, found=cause)


def answer(pool: ReplicaPool, request: Request, assets: Assets, count: int, concurrency: int) -> Pass:
    """Answer the first `count` prompts on `pool`, `concurrency` at once."""
    store = open_store(assets.store("performance"))
    replica_client = ReplicaClient(
        pool.endpoints,
        generation=next(_generations),
        in_flight_limit=None,
        stream=False,
        health=HealthMonitor(PATIENCE_S, PATIENCE_S),
        pool_events=Mailbox(),
        report_failed=_raise_failure,
    )
    replica_client.attach(COMMAND, request.scenarios[0].config.sampling, store)
    found: dict[int, list[int]] = {}
    issued, begin = 0, time.perf_counter()
    while len(found) < count:
        more = min(concurrency - replica_client.unanswered, count - issued)
        if more:
            replica_client.issue(range(issued, issued + more), range(issued, issued + more))
            issued += more
        found |= {done.query: done.ids.tolist() for done in replica_client.poll(PATIENCE_MS).finished}
    seconds = time.perf_counter() - begin
    counted = growth(replica_client.detach().counters)
    replica_client.close()
    return Pass([found[index] for index in range(count)], seconds, counted)


def serve(engine: str, request: Request, assets: Assets, alone: int, loaded: int) -> Served:
    """Start `engine`, answer the prompts, and stop it."""
    [plan] = request.scenarios
    pool = start_pool(
        plan.config,
        engine=engine,
        checkpoint=assets.checkpoint,
        calibration=assets.calibration,
        logs=request.log_folder / engine,
        cache=request.workspace.cache,
        report=lambda _: None,
    )
    try:
        one = answer(pool, request, assets, alone, 1)
        many = answer(pool, request, assets, loaded, plan.config.llm_config["max_num_seqs"])
    finally:
        pool.stop()
    return Served(one, many, _score(many.answers, request, assets))


def _score(answers: Sequence[Sequence[int]], request: Request, assets: Assets) -> dict[str, float]:
    store = open_store(assets.store("performance"))
    return score_answers(
        answers,
        store.targets()[: len(answers)],
        store.kinds()[: len(answers)],
        decoder(assets.checkpoint),
        request.benchmark.accuracy,
        workers=len(os.sched_getaffinity(0)),
    )


def _table(served: dict[str, Served]) -> Table:
    table = Table("engine", "tokens/s alone", "tokens/s loaded", *ROUGE, "cache hits, speculated", box=None)
    for engine, found in served.items():
        counts = (found.alone.counted or {}, found.loaded.counted or {})
        table.add_row(
            engine,
            f"{found.alone.tokens_per_second:,.0f}",
            f"{found.loaded.tokens_per_second:,.0f}",
            *(f"{found.scores[name]:.2f}" for name in ROUGE),
            ", ".join(f"{sum(count[what] for count in counts):g}" for what in counts[0]) or "none by its arguments",
        )
    return table


def _document(served: dict[str, Served], comparison: Comparison) -> dict[str, Any]:
    engines = {
        engine: {
            "alone_tokens_per_second": found.alone.tokens_per_second,
            "loaded_tokens_per_second": found.loaded.tokens_per_second,
            "scores": found.scores,
            "counted": [found.alone.counted, found.loaded.counted],
        }
        for engine, found in served.items()
    }
    return {"engines": engines, "comparison": asdict(comparison), "machine": detect()}


def run(alone: int, loaded: int, console: Console) -> Comparison:
    """Measure and report."""
    request = resolve(OPTIONS, Workspace())
    request = replace(request, profile=request.profile.model_copy(update={"probe_s": 0}))
    panel = Panel(console)
    with hold(request.options.gpu, COMMAND):
        assets = prepare(Pipeline(request, panel).preparation, panel.stage)
        served = {engine: serve(engine, request, assets, alone, loaded) for engine in ENGINES}
    comparison = compare(*(served[engine] for engine in ENGINES))
    console.print(_table(served))
    console.print(
        f"alone: {comparison.same_alone} of {comparison.alone} equal; loaded: {comparison.differing_loaded:.2%} of "
        f"{comparison.loaded} differ, ROUGE by at most {comparison.rouge_difference:.3f} (limit {MAX_ROUGE_DIFFERENCE})"
    )
    sys.stdout.write(json.dumps(_document(served, comparison)) + "\n")
    return comparison


def main() -> None:
    """Run the benchmark; report errors like the command line."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--alone", type=int, default=200, help="prompts answered one at a time (default %(default)s)")
    parser.add_argument("--loaded", type=int, default=2048, help="prompts answered under load (default %(default)s)")
    arguments = parser.parse_args()
    try:
        comparison = run(arguments.alone, arguments.loaded, Console(stderr=True))
        if not comparison.good:
            raise GateFailed("the engines differ", found=json.dumps(asdict(comparison)))
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
