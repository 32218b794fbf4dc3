"""Seconds to score answers of OpenOrca's length: ours against rouge_score, and against the reference's processes.

    python -m benchmarks.scoring

Answers and targets are made of sentences of GSM8K. rouge_score scores the first of the answers alone, and what it is
compared with scores the same ones, or has its rate compared, in answers a second. The table goes to stderr; the last
line on stdout is one JSON document. A ratio below what is wanted, one process against one, ends with 1.
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
WANTED = 20
WORDS = 220  # OpenOrca's mean of 294.45 tokens
GATED = ("rouge1", "rouge2", "rougeL")
ALL = (*GATED, "rougeLsum")  # which the reference computes, whatever is gated

Pairs = list[tuple[str, str]]


@dataclass(frozen=True)
class Timing:
    """One way to score so many answers; CPU seconds of all of its processes."""

    way: str
    answers: int
    processes: int
    seconds: float
    cpu_s: float
    means: dict[str, float]

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds

    @property
    def cpu_rate(self) -> float:
        """Answers a CPU second, which neighbours disturb less."""
        return self.answers / self.cpu_s


def ratios(timings: Mapping[str, Timing]) -> dict[str, float]:
    """How many times faster the harness is: one process against one, every core against every core."""
    one, one_other = timings["harness"], timings["rouge_score"]
    many, many_others = timings["harness, same metrics"], timings["reference's way"]
    return {
        "one_process": one.rate / one_other.rate,
        "one_process_cpu": one.cpu_rate / one_other.cpu_rate,
        "every_core": many.rate / many_others.rate,
        "every_core_cpu": many.cpu_rate / many_others.cpu_rate,
    }


def made_up(sentences: Sequence[str], count: int) -> Pairs:
    """Targets and answers of sentences on lines of their own; half of an answer's are its target's."""
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
    """F-measures by rouge_score itself."""
    scorer = RougeScorer(metrics, use_stemmer=True)
    found = (scorer.score(target, answer) for target, answer in pairs)
    return [[scores[metric].fmeasure for metric in metrics] for scores in found]


def reference(pairs: Pairs, processes: int, metrics: Sequence[str]) -> dict[str, float]:
    """Means as language/llama2-70b/evaluate-accuracy.py finds them: an equal share of the answers per process."""
    share = math.ceil(len(pairs) / processes)
    shares = [pairs[start : start + share] for start in range(0, len(pairs), share)]
    if processes == 1:
        rows = rouge_score(pairs, metrics)
    else:
        with multiprocessing.Pool(processes) as pool:
            rows = [row for part in pool.map(partial(rouge_score, metrics=metrics), shares) for row in part]
    columns = zip(metrics, zip(*rows, strict=True), strict=True)
    return {metric: round(sum(column) / len(column) * 100, 4) for metric, column in columns}


def ours(pairs: Pairs, processes: int, metrics: Sequence[str]) -> dict[str, float]:
    """Means as the harness finds them, from ids that are decoded already."""
    names = {metric.upper(): metric for metric in metrics}
    accuracy = Accuracy.model_validate({"metrics": list(names), "sentence_split": False})
    targets, answers = (list(column) for column in zip(*pairs, strict=True))
    ids = [[0]] * len(pairs)
    scores = score_answers(ids, targets, None, lambda _: answers, accuracy, workers=processes)
    return {metric: scores[name] for name, metric in names.items()}


Way = Callable[[Pairs, int, Sequence[str]], dict[str, float]]


def timed(way: Way, pairs: Pairs, processes: int, metrics: Sequence[str]) -> Timing:
    """Score `pairs` one way, here and now."""
    before, begin = os.times(), time.perf_counter()
    means = way(pairs, processes, metrics)
    seconds, after = time.perf_counter() - begin, os.times()
    return Timing(way.__name__, len(pairs), processes, seconds, sum(after[:4]) - sum(before[:4]), means)


def measure(way: Way, pairs: Pairs, processes: int, metrics: Sequence[str]) -> Timing:
    """The same in a process that has seen no word before; its start is not counted."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(timed, way, pairs, processes, metrics).result()


def measure_all(pairs: Pairs, compared: int) -> dict[str, Timing]:
    """Everything, by name; what takes rouge_score long is measured with the first `compared` answers."""
    cores, first = len(os.sched_getaffinity(0)), pairs[:compared]
    return {
        "rouge_score": measure(reference, first, 1, GATED),
        "harness": measure(ours, first, 1, GATED),
        "harness, all": measure(ours, pairs, 1, GATED),
        "harness, all, every core": measure(ours, pairs, cores, GATED),
        "reference's way": measure(reference, first, cores, ALL),
        "harness, same metrics": measure(ours, pairs, cores, ALL),
    }


def _sentences(file: Path) -> list[str]:
    try:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    except OSError as error:
        raise ConfigError("there are no texts to make answers of", where=str(file), found=str(error)) from error
    texts = [row[field] for field in ("question", "answer") for row in rows]
    return [sentence for text in texts for sentence in re.split(r"(?<=[.?])\s+|\n", text)]


def _table(timings: Mapping[str, Timing]) -> Table:
    table = Table("", "processes", "metrics", "answers", "s", "CPU s", "answers/s", box=None, pad_edge=False)
    for name, t in timings.items():
        figures = (f"{t.processes}", f"{len(t.means)}", f"{t.answers:,}", f"{t.seconds:.1f}", f"{t.cpu_s:.1f}")
        table.add_row(name, *figures, f"{t.rate:,.0f}")
    return table


def run(texts: Path, answers: int, compared: int, console: Console) -> float:
    """Measure and report; returns how many times faster the harness is, one process against one.

    Raises:
        ConfigError: there are no texts.
        GateFailed: the two do not find the same scores.
    """
    timings = measure_all(made_up(_sentences(texts), answers), compared)
    theirs, own = timings["rouge_score"], timings["harness"]
    if theirs.means != own.means:
        raise GateFailed("the harness scores otherwise", expected=str(theirs.means), found=str(own.means))
    found = ratios(timings)
    console.print(_table(timings))
    console.print("the harness is faster by: " + ", ".join(f"{name} {ratio:.1f}" for name, ratio in found.items()))
    report = {"wanted": WANTED, "ratios": found, "timings": {name: asdict(t) for name, t in timings.items()}}
    sys.stdout.write(json.dumps(report | {"machine": detect()}) + "\n")
    return found["one_process"]


def main() -> None:
    """Run the bench; errors are told as the command line tells them."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scoring", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--texts", type=Path, default=TEXTS, help="GSM8K, JSON lines (default %(default)s)")
    parser.add_argument("--answers", type=int, default=24576, help="(default %(default)s)")
    parser.add_argument("--compared", type=int, default=500, help="those that rouge_score scores (default %(default)s)")
    arguments = parser.parse_args()
    try:
        ratio = run(arguments.texts, arguments.answers, arguments.compared, Console(stderr=True))
        if ratio < WANTED:
            raise GateFailed("scoring is slower than it may be", expected=f">= {WANTED}", found=f"{ratio:.1f}")
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
