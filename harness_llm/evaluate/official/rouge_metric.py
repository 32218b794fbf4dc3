"""Metric `rouge` for Hugging Face's evaluate; replaces the hub's metric, which calls rouge_score too.

The official accuracy scripts load it by name. It supports only their arguments: no aggregation.
"""

from typing import Any

import datasets
import evaluate
from rouge_score.rouge_scorer import RougeScorer

_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class Rouge(evaluate.Metric):  # type: ignore[misc]
    """F-measures of each pair of prediction and reference."""

    def _info(self) -> evaluate.MetricInfo:
        texts = {name: datasets.Value("string") for name in ("predictions", "references")}
        return evaluate.MetricInfo(description="ROUGE by rouge_score", citation="", features=datasets.Features(texts))

    def _compute(
        self, predictions: list[str], references: list[str], *, use_stemmer: bool, use_aggregator: bool
    ) -> dict[str, list[Any]]:
        if use_aggregator:
            raise ValueError("use_aggregator is not supported")
        scorer = RougeScorer(_TYPES, use_stemmer=use_stemmer)
        scores = [scorer.score(target, text) for target, text in zip(references, predictions, strict=True)]
        return {name: [score[name].fmeasure for score in scores] for name in _TYPES}
