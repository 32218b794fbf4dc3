"""Accuracy scores, computed as in the reference implementations (language/*/evaluat*.py)."""

import math
import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, TypeVar

import nltk
import numpy as np

from harness_llm.config.benchmark import Accuracy
from harness_llm.errors import ConfigError, RunFailed
from harness_llm.evaluate import matches, rouge
from harness_llm.evaluate.mbxp import container as mbxp
from harness_llm.evaluate.sentence_splitter import require_splitter
from harness_llm.loadgen.logs import Answer, DamagedLog

Columns = dict[str, list[float]]
"""Values of each sample, by metric."""

_MATCHES: dict[str, Callable[[str, str], float]] = {
    "niah_em": matches.niah_em,
    "qa_em": matches.qa_em,
    "gsm8k": matches.gsm8k,
    "exact": matches.exact,
}
_OF_405B = {"niah_em", "qa_em"}  # the evaluator of llama3.1-405b does not round means
_STRIPPED = {"rouge"} | _OF_405B  # methods that score stripped texts, one sentence per line
_TEXTS_PER_WORKER = 1000  # scoring fewer takes less time than starting a process
_CHUNKS_PER_WORKER = 4
_T = TypeVar("_T")


def answers_by_index(entries: Iterable[Answer], samples: int) -> list[list[int]]:
    """Token ids of the answer to each sample; the first answer counts if a sample was issued twice.

    Raises:
        DamagedLog: a sample has no answer.
        ConfigError: an answer has an index outside the data set.
    """
    found: dict[int, list[int]] = {}
    for entry in entries:
        if entry.qsl_idx not in range(samples):
            raise ConfigError(
                f"answer to sample {entry.qsl_idx}, which is not in the data set",
                expected=f"samples 0 to {samples - 1}",
                hint="score with the data set that the run used",
            )
        if entry.qsl_idx not in found:
            found[entry.qsl_idx] = entry.ids.tolist()
    missing = [index for index in range(samples) if index not in found]
    if missing:
        raise DamagedLog(
            f"{len(missing)} of {samples} samples have no answer",
            expected="an accuracy run over the whole data set",
            found=f"first sample without an answer: {missing[0]}",
        )
    return [found[index] for index in range(samples)]


def score_answers(
    answers: Sequence[Sequence[int]],
    targets: Sequence[str],
    kinds: Sequence[str] | None,
    decode: Callable[[list[list[int]]], list[str]],
    accuracy: Accuracy,
    *,
    workers: int = 1,
) -> dict[str, float]:
    """Score answers against the reference texts.

    Args:
        answers: token ids, one list per sample, including the end-of-sequence id if the model generated it.
        targets: reference texts, in the order of `answers`.
        kinds: kind of each sample; None if the data set has one kind only.
        decode: decodes lists of ids, without special tokens.
        accuracy: required metrics, and the scoring method of each kind.
        workers: processes for ROUGE and sentence splitting, or containers for MBXP.

    Returns:
        The values of `accuracy.metrics`, and GEN_NUM, the number of samples. ROUGE (F-measure), EXACT_MATCH, GSM8K and
        MBXP are means in percent over the samples with that metric; TOKENS_PER_SAMPLE is the mean length of `answers`,
        GEN_LEN the number of characters of all texts.

    Raises:
        ConfigError: the number of targets or kinds differs from that of answers, or a kind has no scoring method.
        EnvironmentMissing: nltk's sentence splitter or the container engine for MBXP is missing.
        RunFailed: a container or a process of the scoring ended early.
    """
    kinds = [""] * len(answers) if kinds is None else kinds
    _require_one_each(len(answers), targets=targets, kinds=kinds)
    _require_known(kinds, accuracy)
    texts = decode([list(answer) for answer in answers])
    columns: Columns = defaultdict(list)
    for kind in dict.fromkeys(kinds):
        own = [i for i, other in enumerate(kinds) if other == kind]
        found = _columns(kind, [targets[i] for i in own], [texts[i] for i in own], accuracy, workers)
        for metric, values in found.items():
            columns[metric] += values
    scores = {metric: _total(metric, values, accuracy) for metric, values in columns.items() if values}
    scores |= token_counts(answers)
    return {metric: scores[metric] for metric in (*accuracy.metrics, "GEN_NUM") if metric in scores}


def token_counts(answers: Sequence[Sequence[int]]) -> dict[str, float]:
    """TOKENS_PER_SAMPLE, the mean length rounded to 1 digit as in all references, and GEN_NUM."""
    return {"TOKENS_PER_SAMPLE": round(sum(map(len, answers)) / len(answers), 1), "GEN_NUM": len(answers)}


def _columns(kind: str, targets: list[str], texts: list[str], accuracy: Accuracy, workers: int) -> Columns:
    """Values of the samples of one kind; match methods score the metric named like the kind, else EXACT_MATCH."""
    method = accuracy.scoring[kind]
    metric = kind if kind in accuracy.metrics else "EXACT_MATCH"
    if method == "mbxp":
        return {metric: mbxp.score(targets, texts, workers)}
    if method in _STRIPPED and accuracy.sentence_split:
        require_splitter()
    rouges = [metric for metric in accuracy.metrics if metric in rouge.METRICS]
    names = [*(["GEN_LEN"] if method in _STRIPPED else []), *(rouges if method == "rouge" else [metric])]
    row = partial(_row, method=method, rouges=rouges, split=accuracy.sentence_split)
    rows = _spread(workers, row, targets, texts)
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _row(target: str, text: str, *, method: str, rouges: Sequence[str], split: bool) -> list[float]:
    """Values of one sample: the number of characters for methods in `_STRIPPED`, then percentages."""
    if method not in _STRIPPED:
        return [_MATCHES[method](target, text)]
    target, text = (_stripped(each, split=split) for each in (target, text))
    if method == "rouge":
        return [len(text), *(100 * value for value in rouge.score(target, text, rouges))]
    return [len(text), _MATCHES[method](target, text)]


def _total(metric: str, values: list[float], accuracy: Accuracy) -> float:
    if metric == "GEN_LEN":
        return sum(values)
    mean = float(np.mean(values))
    rounded = metric in rouge.METRICS and _OF_405B.isdisjoint(accuracy.scoring.values())
    return round(mean, 4) if rounded else mean


def _spread(workers: int, function: Callable[..., _T], *columns: Sequence[Any]) -> list[_T]:
    """Map `function` over `columns`, in up to `workers` processes for large inputs."""
    workers = min(workers, len(columns[0]) // _TEXTS_PER_WORKER)
    if workers < 2:  # noqa: PLR2004
        return list(map(function, *columns))
    chunk = math.ceil(len(columns[0]) / workers / _CHUNKS_PER_WORKER)
    # Not fork: a child would inherit locks that other threads of this process hold.
    try:
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(function, *columns, chunksize=chunk))
    except BrokenProcessPool as error:
        raise RunFailed(
            "a process of the scoring was killed", found=str(error), hint="end other programs if host memory is short"
        ) from error


def _stripped(text: str, *, split: bool) -> str:
    return "\n".join(nltk.sent_tokenize(text.strip())) if split else text.strip()


def _require_one_each(answers: int, **columns: Sequence[str]) -> None:
    for name, column in columns.items():
        if len(column) != answers:
            raise ConfigError(
                f"number of {name} differs from the number of answers",
                expected=f"{answers} {name}",
                found=f"{len(column)} {name}",
            )


def _require_known(kinds: Sequence[str], accuracy: Accuracy) -> None:
    if unknown := sorted(set(kinds) - set(accuracy.scoring)):
        raise ConfigError(
            "the data set has samples of a kind without a scoring method",
            expected=", ".join(map(repr, accuracy.scoring)),
            found=", ".join(map(repr, unknown)),
        )
