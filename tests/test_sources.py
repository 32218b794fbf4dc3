import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness_llm.errors import ConfigError
from harness_llm.prepare.datasets.samples import token_ids
from harness_llm.prepare.datasets.sources import SOURCES

IDS = [[1, 5, 29871], [1], [1, 2]]

Write = Callable[[Path, dict[str, list[Any]]], object]


def _pickle(file: Path, columns: dict[str, list[Any]]) -> None:
    pd.DataFrame(columns).to_pickle(file, compression=None)


def _json(file: Path, columns: dict[str, list[Any]]) -> None:
    file.write_text(json.dumps([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]))


def _parquet(file: Path, columns: dict[str, list[Any]]) -> None:
    pd.DataFrame(columns).to_parquet(file)


ARTICLES = {"instruction": [{"llama": "Do {input}"}] * 3, "input": ["x", "y", "z"]}
ID, INPUT = {"id": ["a.1", "b.2", "c.3"]}, {"input": ["x", "y", "z"]}
TEXTS = ["a\nb", "", "ä"]
MIXTURE = {"id": ["t0.1", "python_first_odd", "7"], "dataset": ["OpenOrca", "MBXP", "GSM8K"]}
PROGRAM = '{"lang": "python", "entry_point": "first_odd", "test": "check"}'
QUESTIONS = {"text_input": ["x", "y", "z"], "dataset": ["aime", "gpqa", "math500"]}

CASES: dict[str, tuple[str, Write, dict[str, list[Any]], list[str] | None, list[str] | None]] = {
    "openorca": ("openorca", _pickle, ID | {"tok_input": IDS, "output": TEXTS}, TEXTS, None),
    "cnn_dailymail": ("cnn_dailymail", _json, ARTICLES | {"tok_input": IDS, "output": TEXTS}, TEXTS, None),
    "405b": (
        "llama3.1-405b",
        _pickle,
        INPUT | {"tok_input": IDS, "gt_output": TEXTS, "metric": ["rouge", "niah_em", "qa_em"]},
        TEXTS,
        ["rouge", "niah_em", "qa_em"],
    ),
    "mixtral": (
        "mixtral",
        _pickle,
        MIXTURE | {"tok_input": IDS, "gt_output": ["a", "check", "7"]},
        ["a", PROGRAM, "7"],
        MIXTURE["dataset"],
    ),
    "mixtral without programs": (
        "mixtral",
        _pickle,
        {"dataset": ["GSM8K"] * 3, "tok_input": IDS, "gt_output": TEXTS},
        TEXTS,
        ["GSM8K"] * 3,
    ),
    "deepseek-r1": (
        "deepseek-r1",
        _pickle,
        QUESTIONS | {"tok_input": IDS, "ground_truth": [204, "B", None]},
        ["204", "B", ""],
        None,
    ),
    "gpt-oss-120b": ("gpt-oss-120b", _parquet, {"tok_input": IDS, "ground_truth": TEXTS}, TEXTS, None),
    "gpt-oss-120b, version 4": ("gpt-oss-120b", _parquet, {"input_tokens": IDS, "ground_truth": TEXTS}, TEXTS, None),
    "gpt-oss-120b, performance": ("gpt-oss-120b", _parquet, QUESTIONS | {"input_tokens": IDS}, None, None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_published_file_gives_its_samples(case: str, tmp_path: Path) -> None:
    source, write, columns, targets, kinds = CASES[case]
    write(tmp_path / "file", columns)
    found = SOURCES[source](tmp_path / "file")
    assert [list(ids) for ids in found.prompts] == IDS
    assert found.column in columns
    assert (found.targets, found.kinds) == (targets, kinds)
    assert found.encoded


def test_every_source_is_tried() -> None:
    assert {source for source, *_ in CASES.values()} == set(SOURCES)


@pytest.mark.parametrize(
    ("case", "column"),
    [
        (case, column)
        for case, column in [
            *(("openorca", c) for c in ("tok_input", "output")),
            *(("cnn_dailymail", c) for c in ("input", "output")),
            *(("405b", c) for c in ("tok_input", "gt_output", "metric")),
            *(("mixtral", c) for c in ("id", "dataset", "tok_input", "gt_output")),
            *(("deepseek-r1", c) for c in ("tok_input", "ground_truth")),
            ("gpt-oss-120b", "tok_input"),
        ]
    ],
)
def test_a_missing_column_is_told(case: str, column: str, tmp_path: Path) -> None:
    source, write, columns, *_ = CASES[case]
    write(tmp_path / "file", {name: run_keys for name, run_keys in columns.items() if name != column})
    with pytest.raises(ConfigError) as caught:
        SOURCES[source](tmp_path / "file")
    assert caught.value.where == str(tmp_path / "file")
    assert column in caught.value.expected + caught.value.found


@pytest.mark.parametrize(
    ("case", "changed", "told"),
    [
        ("openorca", {"output": ["a", None, "b"]}, ("column output", "row 1")),
        ("405b", {"metric": ["rouge", "rouge", 3]}, ("column metric", "row 2")),
        ("mixtral", {"id": ["t0.1", "python", "7"]}, ("column id", "python")),
        ("cnn_dailymail", {"output": ["a", 5, "b"]}, ("$[1].output",)),
        ("cnn_dailymail", {"tok_input": [[1], [2], ["x"]]}, ("$[2].tok_input",)),
    ],
)
def test_a_wrong_cell_is_told(case: str, changed: Mapping[str, Any], told: tuple[str, ...], tmp_path: Path) -> None:
    source, write, columns, *_ = CASES[case]
    write(tmp_path / "file", columns | changed)
    with pytest.raises(ConfigError) as caught:
        SOURCES[source](tmp_path / "file")
    assert str(tmp_path / "file") in caught.value.where
    assert all(text in str(caught.value) for text in told)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("content", [b"", b"rubbish", b"[", b'{"a": 1}', b"PAR1PAR1"])
def test_another_file_is_told(source: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        SOURCES[source](tmp_path / "file")
    assert caught.value.where == str(tmp_path / "file")


def test_prompts_become_arrays(tmp_path: Path) -> None:
    rows = [[1, 2, 3], np.array([7, 2**31 - 1]), [5] * 4]
    found = token_ids(rows, 4, tmp_path, "tok_input")
    assert [ids.tolist() for ids in found] == [list(row) for row in rows]
    assert {ids.dtype for ids in found} == {np.dtype(np.int32)}


@pytest.mark.parametrize(
    ("prompt", "fault"),
    [
        ([], "no token ids"),
        ([1] * 5, "5 token ids"),
        (None, "other values"),
        ("text", "other values"),
        ([1.5], "other values"),
        ([-1], "other values"),
        ([2**31], "other values"),
        ([True], "other values"),
        ([[1, 2]], "other values"),
        (["a"], "other values"),
        ([None], "other values"),
        ([[1], [1, 2]], "other values"),
        ([2**70], "other values"),
    ],
)
def test_a_wrong_prompt_is_told(prompt: Any, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        token_ids([[1], [2], prompt], 4, Path("some/file"), "tok_input")
    assert caught.value.where == "some/file, column tok_input, row 2"
    assert caught.value.found.startswith(fault)


def test_no_samples_are_told() -> None:
    with pytest.raises(ConfigError, match="empty data set"):
        token_ids([], 4, Path("some/file"), "tok_input")
