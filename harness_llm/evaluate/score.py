"""Scores of a run's answers, as the reference implementations compute them (language/*/evaluat*.py)."""

import math
import multiprocessing
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any, TypeVar

import nltk
import numpy as np

from harness_llm.config.benchmark import Accuracy
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.evaluate import matches, rouge
from harness_llm.evaluate.mbxp import container as mbxp
from harness_llm.loadgen.logs import Answer

Columns = dict[str, list[float]]
"""Per metric, a value for each sample."""

_MATCHES: dict[str, Callable[[str, str], float]] = {
    "niah_em": matches.niah_em,
    "qa_em": matches.qa_em,
    "gsm8k": matches.gsm8k,
    "exact": matches.exact,
}
_OF_405B = {"niah_em", "qa_em"}  # whose evaluator rounds no mean
_TIDY = {"rouge"} | _OF_405B  # see stripped texts, sentence by sentence
_TEXTS_PER_WORKER = 1000  # fewer are scored before a process has started
_CHUNKS_PER_WORKER = 4
_T = TypeVar("_T")


def answers_by_index(entries: Iterable[Answer], samples: int) -> list[list[int]]:
    """The token ids answered to each sample; the first answer counts where a sample was asked twice.

    Raises:
        ConfigError: a sample of the data set has no answer, or an answer is to none of its samples.
    """
    found: dict[int, list[int]] = {}
    for entry in entries:
        if entry.qsl_idx not in range(samples):
            raise ConfigError(
                f"an answer is to sample {entry.qsl_idx}, which the data set does not have",
                expected=f"samples 0 to {samples - 1}",
                hint="score with the data set that the run used",
            )
        if entry.qsl_idx not in found:
            found[entry.qsl_idx] = entry.ids.tolist()
    missing = [index for index in range(samples) if index not in found]
    if missing:
        raise ConfigError(
            f"{len(missing)} of {samples} samples have no answer",
            expected="an accuracy run over the whole data set",
            found=f"the first without one is {missing[0]}",
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
        answers: token ids, one list per sample, the end-of-sequence id included where the model gave it.
        targets: reference texts, in the order of `answers`.
        kinds: of the samples; None where the data set has but one.
        decode: turns lists of ids into texts, special tokens left out.
        accuracy: which metrics are wanted, and how samples of each kind are scored.
        workers: processes that ROUGE and the sentence splitter are spread over, or containers for MBXP.

    Returns:
        Those of `accuracy.metrics` that a sample yields, and GEN_NUM, the number of samples. ROUGE (F-measure),
        EXACT_MATCH, GSM8K and MBXP are means in percent, over the samples scored so; TOKENS_PER_SAMPLE is the mean
        length of `answers`, GEN_LEN the characters of all texts.

    Raises:
        ConfigError: there is not one target and one kind per answer, or a kind that `accuracy` does not know.
        EnvironmentMissing: nltk has no sentence splitter here, or MBXP no container to run programs in.
        RunFailed: the container ended early.
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
    """TOKENS_PER_SAMPLE, the mean length rounded to 1 digit as every reference has it, and GEN_NUM."""
    return {"TOKENS_PER_SAMPLE": round(sum(map(len, answers)) / len(answers), 1), "GEN_NUM": len(answers)}


def _columns(kind: str, targets: list[str], texts: list[str], accuracy: Accuracy, workers: int) -> Columns:
    """What samples of one kind yield; a mere match counts for the metric that is named like the kind."""
    method = accuracy.scoring[kind]
    metric = kind if kind in accuracy.metrics else "EXACT_MATCH"
    if method == "mbxp":
        return {metric: mbxp.score(targets, texts, workers)}
    if method in _TIDY and accuracy.sentence_split:
        _require_splitter()
    rouges = [metric for metric in accuracy.metrics if metric in rouge.METRICS]
    names = [*(["GEN_LEN"] if method in _TIDY else []), *(rouges if method == "rouge" else [metric])]
    row = partial(_row, method=method, rouges=rouges, split=accuracy.sentence_split)
    rows = _spread(workers, row, targets, texts)
    return {name: list(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def _row(target: str, text: str, *, method: str, rouges: Sequence[str], split: bool) -> list[float]:
    """What one sample yields; percent but for the characters."""
    if method not in _TIDY:
        return [_MATCHES[method](target, text)]
    target, text = (_tidy(each, split=split) for each in (target, text))
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
    """`function` over `columns`, in up to `workers` processes where that pays."""
    workers = min(workers, len(columns[0]) // _TEXTS_PER_WORKER)
    if workers < 2:  # noqa: PLR2004
        return list(map(function, *columns))
    chunk = math.ceil(len(columns[0]) / workers / _CHUNKS_PER_WORKER)
    # A fork would copy the locks of this process's threads as they happen to stand.
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(function, *columns, chunksize=chunk))


def _tidy(text: str, *, split: bool) -> str:
    return "\n".join(nltk.sent_tokenize(text.strip())) if split else text.strip()


def _require_one_each(answers: int, **columns: Sequence[str]) -> None:
    for name, column in columns.items():
        if len(column) != answers:
            raise ConfigError(
                f"answers and {name} do not match",
                expected=f"{answers} {name}, one per answer",
                found=f"{len(column)} {name}",
            )


def _require_known(kinds: Sequence[str], accuracy: Accuracy) -> None:
    if unknown := sorted(set(kinds) - set(accuracy.scoring)):
        raise ConfigError(
            "the data set has samples of a kind that the benchmark does not score",
            expected=", ".join(map(repr, accuracy.scoring)),
            found=", ".join(map(repr, unknown)),
        )


def _require_splitter() -> None:
    try:
        nltk.sent_tokenize("One. Two.")
    except LookupError as error:
        raise EnvironmentMissing(
            "nltk has no sentence splitter",
            expected="the data package punkt_tab",
            hint="python -m nltk.downloader punkt_tab",
        ) from error
