"""accuracy.txt: scores of a run in the format that the official checker reads (its constants.py:1804-1831)."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from harness_llm.errors import ConfigError

ACCURACY = "accuracy.txt"

_KEYS = {
    "ROUGE1": "rouge1",
    "ROUGE2": "rouge2",
    "ROUGEL": "rougeL",
    "ROUGELSUM": "rougeLsum",
    "EXACT_MATCH": "exact_match",
    "GSM8K": "gsm8k",
    "MBXP": "mbxp",
    "TOKENS_PER_SAMPLE": "tokens_per_sample",
    "GEN_LEN": "gen_len",
    "GEN_NUM": "gen_num",
}
# The checker's patterns stop at the first character that is not a digit or point: they read 1e-05 as 1.
_PLAIN_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_ROUGE_VALUE = r"\s+'?([\d.]+)'?"
_VALUE = r"\s([\d.]+)"


def _pattern(key: str) -> re.Pattern[str]:
    return re.compile(rf".*'{key}':{_ROUGE_VALUE if key.startswith('rouge') else _VALUE}")


_PATTERNS = {metric: _pattern(key) for metric, key in _KEYS.items()}


def render(scores: Mapping[str, float]) -> str:
    """Render the line of accuracy.txt.

    Raises:
        ConfigError: a score is not a plain decimal number, which the checker would misread.
    """
    items = []
    for metric, score in scores.items():
        text = repr(score)
        if not _PLAIN_NUMBER.fullmatch(text):
            raise ConfigError(
                f"the official checker cannot read {metric}",
                expected="a decimal number >= 0 without exponent",
                found=text,
            )
        items.append(f"'{_KEYS[metric]}': {text}")
    return "{" + ", ".join(items) + "}\n"


def parse(text: str, metrics: Collection[str] = (), where: str = ACCURACY) -> dict[str, float]:
    """Read the scores in an accuracy.txt as the official checker does.

    Args:
        text: content of the file.
        metrics: required metrics.
        where: name of the file, for messages.

    Raises:
        ConfigError: one of `metrics` is missing, or the checker would read another value than the written one.
    """
    scores = {}
    for line in text.splitlines():
        for metric, pattern in _PATTERNS.items():
            if match := pattern.match(line):
                scores[metric] = _float(match[1], metric, where)
    for metric in metrics:
        _require(metric, scores.get(metric), text, where)
    return scores


def write(path: Path, scores: Mapping[str, float]) -> None:
    """Write accuracy.txt and verify it by reading it.

    Raises:
        ConfigError: a score has no format that the checker can read.
    """
    path.write_text(render(scores))
    parsed = parse(path.read_text(), scores, str(path))
    if parsed != dict(scores):
        raise ConfigError(
            "accuracy.txt differs from the scores", where=str(path), expected=str(scores), found=str(parsed)
        )


def _require(metric: str, score: float | None, text: str, where: str) -> None:
    written = re.findall(rf"'{_KEYS[metric]}':\s*([^,}}\n]*)", text)
    if not written:
        raise ConfigError(f"{metric} is missing", where=where, expected=f"'{_KEYS[metric]}': a decimal number")
    if score is None or not _PLAIN_NUMBER.fullmatch(written[-1].strip().strip("'")):
        raise ConfigError(
            f"the official checker cannot read {metric}",
            where=where,
            expected=f"'{_KEYS[metric]}': a decimal number",
            found=written[-1],
            hint="convert NumPy scalars with float() before printing",
        )


def _float(text: str, metric: str, where: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ConfigError(f"{metric} is not a number", where=where, found=text) from error
