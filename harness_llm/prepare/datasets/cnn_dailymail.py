"""CNN/DailyMail (news articles and highlights) for gptj and llama3.1-8b: read and make the data set files.

The published files are JSON lists, `[{"instruction", "input", "tok_input", "output"}, …]`; those of gptj have no
`tok_input`. The source is the parquet files of `cnn_dailymail` 3.0.0 on Hugging Face.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from harness_llm.config.commands import command
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.fileio import write_atomically
from harness_llm.prepare.datasets.encoder import Encode
from harness_llm.prepare.datasets.samples import Samples

EVALUATION = "cnn_eval.json"
EVALUATION_PART = "sample_cnn_eval_{}.json"
CALIBRATION = "cnn_dailymail_calibration.json"
SEED = 42

# language/gpt-j/download_cnndm.py and dataset.py of mlcommons/inference
GPTJ_INSTRUCTION = "Summarize the following news article:"
GPTJ_PROMPT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:"
)
# language/llama3.1-8b/download_cnndm.py
LLAMA_PROMPT = (
    "Summarize the following news article in 128 tokens. Please output the summary only, without any other text."
    "\n\nArticle:\n{input}\n\nSummary:"
)


class _Article(msgspec.Struct):
    input: str
    output: str
    instruction: Any = ""
    tok_input: list[int] | None = None


def read_articles(file: Path) -> Samples:
    """Return the samples of a published file; prompts are texts where the file has no token ids.

    Raises:
        ConfigError: a field is missing or has the wrong type.
    """
    try:
        rows = msgspec.json.decode(file.read_bytes(), type=list[_Article])
    except msgspec.DecodeError as error:
        raise ConfigError(
            "invalid data set",
            where=str(file),
            expected='a JSON list of {"input", "output", "tok_input"}',
            found=str(error),
        ) from error
    targets = [row.output for row in rows]
    if any(row.tok_input is not None for row in rows):
        return Samples("tok_input", [row.tok_input for row in rows], targets)
    texts = [GPTJ_PROMPT.format(instruction=row.instruction, input=row.input) for row in rows]
    return Samples("input", texts, targets, encoded=False)


def write_evaluation(folder: Path, output: Path, encode: Encode | None, part: int | None = None) -> Path:
    """Write the evaluation set from the validation split; return the file.

    Args:
        folder: folder of the parquet files.
        output: folder to write to.
        encode: encoder of llama3.1-8b; None for gptj, whose files have no token ids.
        part: number of samples of the shuffled split, 5000 for llama3.1-8b-edge; None: the whole split in order.
    """
    articles = _read_split(folder, "validation", ("article", "highlights"))
    chosen: Iterable[int] = range(len(articles))
    if part is not None:
        if part > len(articles):
            raise ConfigError("too few samples", where=str(folder), expected=f">= {part}", found=str(len(articles)))
        # Same permutation as datasets.Dataset.shuffle(seed=42).
        chosen = np.random.default_rng(SEED).permutation(len(articles))[:part].tolist()
    name = EVALUATION if part is None else EVALUATION_PART.format(part)
    return _write(output / name, _samples([articles[i] for i in chosen], encode, {"llama": LLAMA_PROMPT}))


def write_calibration(folder: Path, ids: Path, output: Path, encode: Encode | None) -> Path:
    """Write the official calibration set, the articles of the train split listed in `ids`; return the file."""
    articles = {row[0]: row[1:] for row in _read_split(folder, "train", ("id", "article", "highlights"))}
    wanted = ids.read_text().split()
    missing = [article for article in wanted if article not in articles]
    if missing:
        raise ConfigError(
            "missing articles of the calibration list in the train split",
            where=str(folder),
            expected=f"all {len(wanted)} of {ids}",
            found=f"{len(missing)} missing, for example {missing[0]}",
        )
    return _write(output / CALIBRATION, _samples([articles[article] for article in wanted], encode, LLAMA_PROMPT))


def _samples(articles: Sequence[tuple[str, ...]], encode: Encode | None, instruction: Any) -> list[dict[str, Any]]:
    """Return rows for (article, highlights) pairs; `instruction` is the field's value in llama3.1-8b's files."""
    if encode is None:
        return [
            {"instruction": GPTJ_INSTRUCTION, "input": article, "output": highlights}
            for article, highlights in articles
        ]
    ids = encode([LLAMA_PROMPT.format(input=article) for article, _ in articles])
    return [
        {"instruction": instruction, "input": article, "tok_input": tok_input, "output": highlights}
        for (article, highlights), tok_input in zip(articles, ids, strict=True)
    ]


def _read_split(folder: Path, split: str, columns: Sequence[str]) -> list[tuple[str, ...]]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - 0.2 s

    files = sorted(folder.glob(f"{split}-*.parquet"))
    if not files:
        raise EnvironmentMissing(
            "missing data set",
            where=str(folder / f"{split}-*.parquet"),
            hint=command("download", model="gptj"),
        )
    rows: list[tuple[str, ...]] = []
    for file in files:
        try:
            table = pq.read_table(file, columns=list(columns))
            rows += zip(*(table[column].to_pylist() for column in columns), strict=True)
        except (KeyError, OSError, ValueError) as error:
            raise ConfigError(
                "invalid data set",
                where=str(file),
                expected=f"the columns {', '.join(columns)}",
                found=str(error),
            ) from error
    return rows


def _write(file: Path, rows: Sequence[dict[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(file) as temporary:
        temporary.write_text(json.dumps(rows, indent=4, ensure_ascii=False))
    return file
