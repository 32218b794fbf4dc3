"""Time to score answers of OpenOrca's length: the harness against rouge_score and the reference implementation.

    python -m benchmarks.scoring

Answers and targets consist of sentences of GSM8K. rouge_score scores only the first answers; the harness is compared
over the same answers, or by answers per second. The table goes to stderr; the last line on stdout is one JSON document.
The exit code is 1 if the ratio of one process against one misses its target.
"""

import argparse
import json
import math
import multiprocessing
import os
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rouge_score.rouge_scorer import RougeScorer

from harness_llm.config.benchmark import Accuracy
from harness_llm.errors import ConfigError, GateFailed, HarnessError
from harness_llm.evaluate.score import score_answers
from harness_llm.hardware.machine import detect
from harness_llm.paths import CHECKOUT

TEXTS = CHECKOUT.parent / "shared" / "data" / "gsm8k_test.jsonl"
TARGET = 20
WORDS = 220  # OpenOrca's mean of 294.45 tokens
GATED = ("rouge1", "rouge2", "rougeL")
ALL = (*GATED, "rougeLsum")  # the reference always computes these

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Timing:
    """Measurement of one way to score; CPU seconds of all its processes."""

    way: str
    answers: int
    processes: int
    seconds: float
    cpu_s: float
    means: dict[str, float]

    @property
    def rate(self) -> float:
        """Answers per second."""
        return self.answers / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Answers per CPU second, which other processes affect less than wall time."""
        return self.answers / self.cpu_s


def ratios(timings: Mapping[str, Timing]) -> dict[str, float]:
    """Return the speed-up of the harness: one process against one, and with all cores."""
    one, one_other = timings["harness"], timings["rouge_score"]
    many, many_others = timings["harness, same metrics"], timings["reference's way"]
    return {
        "one_process": one.rate / one_other.rate,
        "one_process_cpu": one.cpu_rate / one_other.cpu_rate,
        "every_core": many.rate / many_others.rate,
        "every_core_cpu": many.cpu_rate / many_others.cpu_rate,
    }


def synthetic(sentences: Sequence[str], count: int) -> Pairs:
    """Return pairs of target and answer, one sentence per line; half of an answer's sentences are its target's."""
    generator = random.Random(0)  # noqa: S311

    def text() -> list[str]:
        length, chosen = generator.gauss(WORDS, WORDS / 3), list[str]()
        while sum(len(sentence.split()) for sentence in chosen) < length:
            chosen.append(generator.choice(sentences))
        return chosen

    def pair() -> tuple[str, str]:
        target, other = text(), text()
        answer = [own if generator.random() < 1 / 2 else foreign for own, foreign in zip(target, other, strict=False)]
        return "\n".join(target), "\n".join(answer + other[len(target) :])

    return [pair() for _ in range(count)]


def rouge_score(pairs: Pairs, metrics: Sequence[str]) -> list[list[float]]:
    """Return the F-measures of rouge_score."""
    scorer = RougeScorer(metrics, use_stemmer=True)
    found = (scorer.score(target, answer) for target, answer in pairs)
    return [[scores[metric].fmeasure for metric in metrics] for scores in found]


def reference(pairs: Pairs, processes: int, metrics: Sequence[str]) -> dict[str, float]:
    """Return the means as language/llama2-70b/evaluate-accuracy.py computes them: an equal share per process."""
    share = math.ceil(len(pairs) / processes)
    shares = [pairs[start : start + share] for start in range(0, len(pairs), share)]
    if processes == 1:
        rows = rouge_score(pairs, metrics)
    else:
        with multiprocessing.Pool(processes) as pool:
            rows = [row for part in pool.map(partial(rouge_score, metrics=metrics), shares) for row in part]
    columns = zip(metrics, zip(*rows, strict=True), strict=True)
    return {metric: round(sum(column) / len(column) * 100, 4) for metric, column in columns}


def harness(pairs: Pairs, processes: int, metrics: Sequence[str]) -> dict[str, float]:
    """Return the means as the harness computes them, without decoding."""
    names = {metric.upper(): metric for metric in metrics}
    accuracy = Accuracy.model_validate({"metrics": list(names), "sentence_split": False})
    targets, answers = (list(column) for column in zip(*pairs, strict=True))
    ids = [[0]] * len(pairs)
    scores = score_answers(ids, targets, None, lambda _: answers, accuracy, workers=processes)
    return {metric: scores[name] for name, metric in names.items()}


Way = Callable[[Pairs, int, Sequence[str]], dict[str, float]]


def timed(way: Way, pairs: Pairs, processes: int, metrics: Sequence[str]) -> Timing:
    """Score `pairs` in this process."""
    before, begin = os.times(), time.perf_counter()
    means = way(pairs, processes, metrics)
    seconds, after = time.perf_counter() - begin, os.times()
    return Timing(way.__name__, len(pairs), processes, seconds, sum(after[:4]) - sum(before[:4]), means)


def measure(way: Way, pairs: Pairs, processes: int, metrics: Sequence[str]) -> Timing:
    """Score `pairs` in a new process without caches; its start is not counted."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(timed, way, pairs, processes, metrics).result()


def measure_all(pairs: Pairs, compared: int) -> dict[str, Timing]:
    """Measure all ways; rouge_score, which is slow, only with the first `compared` answers."""
    cores, first = len(os.sched_getaffinity(0)), pairs[:compared]
    return {
        "rouge_score": measure(reference, first, 1, GATED),
        "harness": measure(harness, first, 1, GATED),
        "harness, all": measure(harness, pairs, 1, GATED),
        "harness, all, every core": measure(harness, pairs, cores, GATED),
        "reference's way": measure(reference, first, cores, ALL),
        "harness, same metrics": measure(harness, pairs, cores, ALL),
    }


def _sentences(file: Path) -> list[str]:
    try:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    except OSError as error:
        raise ConfigError("missing texts for the answers", where=str(file), found=str(error)) from error
    texts = [row[field] for field in ("question", "answer") for row in rows]
    return [sentence for text in texts for sentence in re.split(r"(?<=[.?])\s+|\n", text)]


def _table(timings: Mapping[str, Timing]) -> Table:
    table = Table("", "processes", "metrics", "answers", "s", "CPU s", "answers/s", box=None, pad_edge=False)
    for name, t in timings.items():
        figures = (f"{t.processes}", f"{len(t.means)}", f"{t.answers:,}", f"{t.seconds:.1f}", f"{t.cpu_s:.1f}")
        table.add_row(name, *figures, f"{t.rate:,.0f}")
    return table


def run(texts: Path, answers: int, compared: int, console: Console) -> float:
    """Measure and report; return the speed-up of the harness with one process.

    Raises:
        ConfigError: missing texts.
        GateFailed: the scores differ.
    """
    timings = measure_all(synthetic(_sentences(texts), answers), compared)
    theirs, own = timings["rouge_score"], timings["harness"]
    if theirs.means != own.means:
        raise GateFailed("scores differ from rouge_score", expected=str(theirs.means), found=str(own.means))
    found = ratios(timings)
    console.print(_table(timings))
    console.print("speed-up of the harness: " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in found.items()))
    report = {"target": TARGET, "ratios": found, "timings": {name: asdict(t) for name, t in timings.items()}}
    sys.stdout.write(json.dumps(report | {"machine": detect()}) + "\n")
    return found["one_process"]


def main() -> None:
    """Run the benchmark; report errors like the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scoring", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--texts", type=Path, default=TEXTS, help="GSM8K, JSON lines (default %(default)s)")
    parser.add_argument("--answers", type=int, default=24576, help="number of answers (default %(default)s)")
    parser.add_argument("--compared", type=int, default=500, help="answers for rouge_score (default %(default)s)")
    arguments = parser.parse_args()
    try:
        ratio = run(arguments.texts, arguments.answers, arguments.compared, Console(stderr=True))
        if ratio < TARGET:
            raise GateFailed("scoring misses its target", expected=f">= {TARGET}", found=f"{ratio:.1f}")
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
