"""Scores of a run's answers, as the reference computes them (language/llama2-70b/evaluate-accuracy.py)."""

from collections.abc import Callable, Iterable, Sequence

import nltk
import numpy as np

from harness_llm.accuracy import rouge
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.loadgen.logs import Answer


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
    decode: Callable[[list[list[int]]], list[str]],
    metrics: Sequence[str],
    sentence_split: bool = False,
) -> dict[str, float]:
    """Score answers against the reference texts.

    Args:
        answers: token ids, one list per sample, the end-of-sequence id included where the model gave it.
        targets: reference texts, in the order of `answers`.
        decode: turns lists of ids into texts, special tokens left out.
        metrics: ROUGE1, ROUGE2, ROUGEL, ROUGELSUM (mean F-measures in percent, 4 digits),
            TOKENS_PER_SAMPLE (mean length of `answers`, 1 digit), GEN_LEN (characters of all texts).
        sentence_split: put sentences on lines of their own first, for ROUGELSUM and GEN_LEN.

    Returns:
        `metrics` by name, and GEN_NUM, the number of samples.

    Raises:
        ConfigError: there is not one target per answer.
        EnvironmentMissing: nltk has no sentence splitter here.
    """
    if len(answers) != len(targets):
        raise ConfigError(
            "answers and reference texts do not match",
            expected=f"{len(answers)} texts, one per answer",
            found=f"{len(targets)} texts",
        )
    if sentence_split:
        _require_splitter()
    predictions = [_lines(text, sentence_split) for text in decode([list(answer) for answer in answers])]
    references = [_lines(text, sentence_split) for text in targets]
    rouges = [metric for metric in metrics if metric in rouge.METRICS]
    rows = [
        rouge.score(rouge.Text(reference), rouge.Text(prediction), rouges)
        for reference, prediction in zip(references, predictions, strict=True)
    ]
    means = [float(round(np.mean(column) * 100, 4)) for column in zip(*rows, strict=True)]
    scores: dict[str, float] = dict(zip(rouges, means, strict=True)) | {
        "TOKENS_PER_SAMPLE": round(sum(map(len, answers)) / len(answers), 1),
        "GEN_LEN": sum(map(len, predictions)),
    }
    return {metric: scores[metric] for metric in metrics} | {"GEN_NUM": len(answers)}


def _lines(text: str, sentence_split: bool) -> str:
    return "\n".join(nltk.sent_tokenize(text.strip())) if sentence_split else text.strip()


def _require_splitter() -> None:
    try:
        nltk.sent_tokenize("One. Two.")
    except LookupError as error:
        raise EnvironmentMissing(
            "nltk has no sentence splitter",
            expected="the data package punkt_tab",
            hint="python -m nltk.downloader punkt_tab",
        ) from error
