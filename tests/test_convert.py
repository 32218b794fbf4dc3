import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.prepare.datasets.convert import convert, is_converted, store_path
from harness_llm.protocol.token_store import open_store

LONGEST = 60


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    return _tokenizer(tmp_path / "tokenizer.json", first=0)


def _tokenizer(file: Path, first: int) -> Path:
    """A tokenizer of letters."""
    letters = {letter: first + i for i, letter in enumerate(map(chr, range(32, 127)))} | {"\n": first + 95}
    tokenizer = Tokenizer(models.WordLevel(letters, unk_token="~"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.save(str(file))
    return file


def _orca(file: Path, **changed: list[Any]) -> Path:
    columns = {"tok_input": [[1, 2], [3]], "output": ["a", "b"]} | changed
    pd.DataFrame(columns).to_pickle(file, compression=None)
    return file


@pytest.fixture
def orca(tmp_path: Path) -> Path:
    return _orca(tmp_path / "orca.sampled_2.pkl")


def test_a_file_becomes_a_store_beside_it(orca: Path, tokenizer: Path) -> None:
    assert not is_converted("openorca", orca, tokenizer, LONGEST)
    path = convert("openorca", orca, tokenizer, LONGEST)
    store = open_store(path)
    assert path == store_path(orca) == orca.with_name("orca.sampled_2.store")
    assert [store.prompt(i).tolist() for i in range(2)] == [[1, 2], [3]]
    assert store.targets() == ["a", "b"]
    assert is_converted("openorca", orca, tokenizer, LONGEST)


def _touch(file: Path) -> None:
    os.utime(file, ns=(1, 1))


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        (lambda file: None, False),
        (_touch, False),
        (lambda file: _orca(file, tok_input=[[1, 2], [4]]), True),
        (lambda file: _orca(file, output=["a", "bb"]), True),
    ],
)
def test_only_another_content_is_converted_anew(
    change: Callable[[Path], object], anew: bool, orca: Path, tokenizer: Path
) -> None:
    manifest = convert("openorca", orca, tokenizer, LONGEST) / "manifest.json"
    before = manifest.stat().st_ino
    change(orca)
    assert is_converted("openorca", orca, tokenizer, LONGEST) is not anew
    convert("openorca", orca, tokenizer, LONGEST)
    assert (manifest.stat().st_ino != before) is anew


def test_a_store_is_no_longer_trusted_without_its_file_or_when_damaged(orca: Path, tokenizer: Path) -> None:
    store = convert("openorca", orca, tokenizer, LONGEST)
    (store / "tokens.npy").unlink()
    assert not is_converted("openorca", orca, tokenizer, LONGEST)
    convert("openorca", orca, tokenizer, LONGEST)
    assert is_converted("openorca", orca, tokenizer, LONGEST)
    orca.unlink()
    assert not is_converted("openorca", orca, tokenizer, LONGEST)


def test_a_store_is_made_for_one_limit_and_source(orca: Path, tokenizer: Path) -> None:
    convert("openorca", orca, tokenizer, LONGEST)
    assert not is_converted("openorca", orca, tokenizer, 1)
    assert not is_converted("mixtral", orca, tokenizer, LONGEST)
    with pytest.raises(ConfigError) as caught:
        convert("openorca", orca, tokenizer, 1)
    assert caught.value.where == f"{orca}, column tok_input, row 0"
    assert open_store(store_path(orca)).prompt(0).tolist() == [1, 2]


def test_texts_are_encoded_by_the_tokenizer_that_is_there(tmp_path: Path, tokenizer: Path) -> None:
    file = tmp_path / "cnn_eval.json"
    file.write_text('[{"instruction": "Do", "input": "this", "output": "that"}]')
    store = open_store(convert("cnn_dailymail", file, tokenizer, LONGEST))
    text = "Below is an instruction that describes a task, paired with an input"
    assert "".join(chr(32 + i) for i in store.prompt(0)) == text[:LONGEST]
    whole = open_store(convert("cnn_dailymail", file, tokenizer, 1000)).prompt(0)
    assert bytes((whole + 32).tolist()).decode().replace("\x7f", "\n").endswith("\n\n### Input:\nthis\n\n### Response:")
    _tokenizer(tokenizer, first=1)
    assert not is_converted("cnn_dailymail", file, tokenizer, 1000)
    assert open_store(convert("cnn_dailymail", file, tokenizer, 1000)).prompt(0).tolist() == (whole + 1).tolist()
    tokenizer.unlink()
    with pytest.raises(EnvironmentMissing, match="missing tokenizer"):
        convert("cnn_dailymail", file, tokenizer, 1000)


def test_token_ids_need_no_tokenizer(orca: Path, tokenizer: Path) -> None:
    tokenizer.unlink()
    convert("openorca", orca, tokenizer, LONGEST)
    assert is_converted("openorca", orca, tokenizer, LONGEST)


def test_a_wrong_file_leaves_nothing_behind(tmp_path: Path, tokenizer: Path) -> None:
    file = _orca(tmp_path / "orca.pkl", tok_input=[[1], []])
    with pytest.raises(ConfigError, match="invalid prompt"):
        convert("openorca", file, tokenizer, LONGEST)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["orca.pkl", "tokenizer.json"]


def test_an_unknown_source_names_the_known_ones(orca: Path, tokenizer: Path) -> None:
    with pytest.raises(ConfigError, match="unknown data source nothing") as caught:
        convert("nothing", orca, tokenizer, LONGEST)
    assert "openorca" in caught.value.expected
