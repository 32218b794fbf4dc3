"""Readers of the published data sets' files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness_llm.errors import ConfigError
from harness_llm.prepare.datasets.cnn_dailymail import read_articles
from harness_llm.prepare.datasets.pickles import read_pickle
from harness_llm.prepare.datasets.samples import Samples

Table = dict[str, list[Any]]

MBXP = "MBXP"


def read_openorca(file: Path) -> Samples:
    """llama2-70b."""
    table = read_pickle(file)
    return Samples("tok_input", _column(table, "tok_input", file), _texts(table, "output", file))


def read_llama_405b(file: Path) -> Samples:
    """llama3.1-405b; the kind of a sample is its metric."""
    table = read_pickle(file)
    targets, kinds = _texts(table, "gt_output", file), _texts(table, "metric", file)
    return Samples("tok_input", _column(table, "tok_input", file), targets, kinds)


def read_mixtral(file: Path) -> Samples:
    """mixtral-8x7b; the kind of a sample is its data set.

    The target of an MBXP sample is JSON, `{"lang", "entry_point", "test"}`: language and function from its id, and the
    test program.
    """
    table = read_pickle(file)
    kinds, targets = _texts(table, "dataset", file), _answers(table, "gt_output", file)
    if MBXP in kinds:
        ids = _texts(table, "id", file)
        targets = [_program(*row, file) if row[1] == MBXP else row[2] for row in zip(ids, kinds, targets, strict=True)]
    return Samples("tok_input", _column(table, "tok_input", file), targets, kinds)


def read_deepseek_r1(file: Path) -> Samples:
    """deepseek-r1; `tok_input` includes the chat template."""
    table = read_pickle(file)
    return Samples("tok_input", _column(table, "tok_input", file), _answers(table, "ground_truth", file))


def read_gpt_oss(file: Path) -> Samples:
    """gpt-oss-120b: parquet; version 4 of the data set renamed the prompt column.

    The performance set has no ground truth.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - 0.2 s

    try:
        table = pq.read_table(file).to_pydict()
    except (OSError, ValueError) as error:
        raise ConfigError("invalid parquet file", where=str(file), found=str(error)) from error
    column = "input_tokens" if "input_tokens" in table else "tok_input"
    targets = _answers(table, "ground_truth", file) if "ground_truth" in table else None
    return Samples(column, _column(table, column, file), targets)


SOURCES: dict[str, Callable[[Path], Samples]] = {
    "openorca": read_openorca,
    "cnn_dailymail": read_articles,
    "llama3.1-405b": read_llama_405b,
    "mixtral": read_mixtral,
    "deepseek-r1": read_deepseek_r1,
    "gpt-oss-120b": read_gpt_oss,
}
"""Readers by `dataset.source` of benchmark.yaml."""


def _column(table: Table, name: str, file: Path) -> list[Any]:
    if name not in table:
        raise ConfigError("missing column in data set", where=str(file), expected=name, found=", ".join(table))
    return table[name]


def _texts(table: Table, name: str, file: Path) -> list[str]:
    column = _column(table, name, file)
    for row, cell in enumerate(column):
        if not isinstance(cell, str):
            raise ConfigError(
                "invalid cell in data set",
                where=f"{file}, column {name}, row {row}",
                expected="a string",
                found=f"{cell!r:.80}",
            )
    return column


def _answers(table: Table, name: str, file: Path) -> list[str]:
    """Return the answers as strings; some files store numbers."""
    return ["" if cell is None else str(cell) for cell in _column(table, name, file)]


def _program(identity: str, _: str, test: str, file: Path) -> str:
    """`identity` is <language>_<function>, language/mixtral-8x7b/evaluate-accuracy.py."""
    lang, _, entry_point = identity.partition("_")
    if not entry_point:
        raise ConfigError(
            "invalid id of an MBXP sample",
            where=f"{file}, column id",
            expected="<language>_<function>",
            found=identity,
        )
    return json.dumps({"lang": lang, "entry_point": entry_point, "test": test})
