import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.paths import CHECKOUT
from harness_llm.prepare.datasets.cnn_dailymail import read_articles, write_calibration, write_evaluation

ARTICLES = 30
# What `datasets` makes of thirty rows by shuffle(seed=42), version 5.2.
SHUFFLED = [29, 16, 7, 25, 24]
PROMPT = (
    "Summarize the following news article in 128 tokens. Please output the summary only, without any other text.\n\n"
    "Article:\n{}\n\nSummary:"
)


def _encode(texts: list[str]) -> list[list[int]]:
    return [[1, *text.encode()] for text in texts]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    """The shape of cnn_dailymail on Hugging Face: a validation file, and the train split in parts."""
    folder = tmp_path / "parquet"
    folder.mkdir()
    for split, rows in {
        "validation-00000-of-00001": range(ARTICLES),
        "train-00000-of-00002": range(100, 105),
        "train-00001-of-00002": range(105, 110),
    }.items():
        run_keys = {"article": [f"news {{{i}}} é" for i in rows], "highlights": [f"high {i}\nlow" for i in rows]}
        pd.DataFrame(run_keys | {"id": [f"id{i}" for i in rows]}).to_parquet(folder / f"{split}.parquet")
    return folder


def test_gptj_has_all_articles_in_order_and_no_ids(parquet: Path, tmp_path: Path) -> None:
    file = write_evaluation(parquet, tmp_path / "out", None)
    rows = json.loads(file.read_text())
    assert file == tmp_path / "out" / "cnn_eval.json"
    assert [row["input"] for row in rows] == [f"news {{{i}}} é" for i in range(ARTICLES)]
    assert rows[3] == {
        "instruction": "Summarize the following news article:",
        "input": "news {3} é",
        "output": "high 3\nlow",
    }
    found = read_articles(file)
    assert not found.encoded
    assert found.targets == [f"high {i}\nlow" for i in range(ARTICLES)]
    assert found.prompts[3] == (
        "Below is an instruction that describes a task, paired with an input that provides further context. "
        "Write a response that appropriately completes the request.\n\n### Instruction:\n"
        "Summarize the following news article:\n\n### Input:\nnews {3} é\n\n### Response:"
    )


def test_llama_has_the_ids_of_its_prompt(parquet: Path, tmp_path: Path) -> None:
    rows = json.loads(write_evaluation(parquet, tmp_path, _encode).read_text())
    assert [row["tok_input"] for row in rows] == _encode([PROMPT.format(row["input"]) for row in rows])
    assert rows[0]["instruction"] == {"llama": PROMPT.replace("{}", "{input}")}
    assert list(rows[0]) == ["instruction", "input", "tok_input", "output"]


def test_the_edge_set_is_a_part_of_the_shuffled_one(parquet: Path, tmp_path: Path) -> None:
    file = write_evaluation(parquet, tmp_path, _encode, part=5)
    assert file.name == "sample_cnn_eval_5.json"
    assert [row["input"] for row in json.loads(file.read_text())] == [f"news {{{i}}} é" for i in SHUFFLED]


@pytest.mark.parametrize("encode", [None, _encode])
def test_the_calibration_set_is_the_listed_articles_in_their_order(
    encode: object, parquet: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "calibration-list.txt"
    listed.write_text("id107\nid100\nid104\n")
    file = write_calibration(parquet, listed, tmp_path, encode)  # type: ignore[arg-type]
    rows = json.loads(file.read_text())
    assert file.name == "cnn_dailymail_calibration.json"
    assert [row["output"] for row in rows] == ["high 107\nlow", "high 100\nlow", "high 104\nlow"]
    assert ("tok_input" in rows[0]) is (encode is not None)
    listed.write_text("id107\nid3\n")
    with pytest.raises(ConfigError, match="missing articles") as caught:
        write_calibration(parquet, listed, tmp_path, encode)  # type: ignore[arg-type]
    assert "id3" in caught.value.found


def test_missing_or_other_parquet_files_are_told(parquet: Path, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentMissing, match="missing data set"):
        write_evaluation(tmp_path, tmp_path, None)
    with pytest.raises(ConfigError, match="too few samples"):
        write_evaluation(parquet, tmp_path, None, part=ARTICLES + 1)
    [file] = parquet.glob("validation-*")
    pd.DataFrame({"article": ["a"]}).to_parquet(file)
    with pytest.raises(ConfigError, match="invalid data set") as caught:
        write_evaluation(parquet, tmp_path, None)
    assert caught.value.where == str(file)
    file.write_bytes(b"no parquet")
    with pytest.raises(ConfigError, match="invalid data set"):
        write_evaluation(parquet, tmp_path, None)


def test_the_script_writes_both_files(parquet: Path, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("id109")
    options = [
        f"--dataset-dir={parquet}",
        f"--output-dir={tmp_path / 'out'}",
        f"--calibration-list-file={tmp_path}/list",
    ]
    command = [sys.executable, "setup/prepare_cnn_dailymail.py", *options]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, cwd=CHECKOUT)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [Path(line).name for line in ended.stdout.split()] == ["cnn_eval.json", "cnn_dailymail_calibration.json"]
    assert all(Path(line).is_file() for line in ended.stdout.split())
    ended = subprocess.run([*command, "--model-dir=none"], check=False, capture_output=True, text=True, cwd=CHECKOUT)
    assert ended.returncode == EnvironmentMissing.exit_code
    assert ended.stderr.startswith("error: missing tokenizer")
