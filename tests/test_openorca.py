import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError
from harness_llm.paths import CHECKOUT
from harness_llm.prepare.datasets.encoder import load_encoder
from harness_llm.prepare.datasets.openorca import (
    BAD_SYSTEM_PROMPTS,
    COLUMNS,
    PROMPT,
    RESPONSE_INIT,
    SYSTEM_PROMPT,
    build,
    read_parquet,
    write,
)
from harness_llm.prepare.datasets.pickles import read_pickle

ORIGINS = ("cot", "flan", "niv", "t0")
ROWS = 2000
SAMPLES, CALIBRATION, LIMIT = 60, 20, 90
REFERENCE = Path(os.environ.get("MLPERF_INFERENCE_DIR", "/nowhere")) / "language" / "llama2-70b" / "processorca.py"
UNKNOWN = "<unk>"
WORDS = ["the", "a", "tell", "me", "count", "apples", "seven", "what", "is", "please", "answer", "say", "why"]


def _text(rng: np.random.Generator, longest: int) -> str:
    """Words; now and then with a letter or a mark that is not ASCII."""
    words = list(rng.choice(WORDS, rng.integers(1, longest)))
    odd = rng.choice(["", "", "", "", "", "\u2019s", "\u201cso\u201d", "\u2014", "naïve", "日本", "\u2026"])
    return " ".join([*words, odd]).strip()


@pytest.fixture(scope="module")
def orca() -> pd.DataFrame:
    """Rows of the shape of OpenOrca, some of them for each filter."""
    rng = np.random.default_rng(5)
    systems = [*BAD_SYSTEM_PROMPTS, "You are a teacher.", "Think step-by-step.", "Antworte knäpp."]
    rows = [
        (f"{rng.choice(ORIGINS)}.{i}", rng.choice(systems), _text(rng, 40), rng.choice(["", "B", _text(rng, 50)]))
        for i in range(ROWS)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, orca: pd.DataFrame) -> Path:
    """A folder with a small tokenizer of Llama 2's kind."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN, fuse_unk=True, byte_fallback=True))
    # As transformers 5 makes it of any Llama tokenizer; its version 4 takes tokenizer.json as it is, and so do we.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=[UNKNOWN, "<s>", "</s>"], show_progress=False)
    texts = [*orca.question, *orca.response, *BAD_SYSTEM_PROMPTS, PROMPT, SYSTEM_PROMPT]
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    facts = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": UNKNOWN}
    (folder / "tokenizer_config.json").write_text(json.dumps(facts | {"add_bos_token": True, "add_eos_token": False}))
    return folder


@pytest.fixture(scope="module")
def built(orca: pd.DataFrame, model: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    return build(orca, load_encoder(model / "tokenizer.json"), LIMIT, SAMPLES, CALIBRATION)


def test_filters_leave_what_the_reference_keeps(orca: pd.DataFrame, built: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    evaluation, calibration = built
    assert evaluation.origin.tolist() == [origin for origin in ORIGINS for _ in range(SAMPLES // len(ORIGINS))]
    assert evaluation.id.is_unique
    assert set(calibration.id) <= set(evaluation.id)
    assert len(calibration) == CALIBRATION
    assert (evaluation.tok_input.map(len) < LIMIT).all()
    assert evaluation.tok_output.map(len).between(3, LIMIT - 1).all()
    assert all(ids[:2] == [1, 1] and ids[-1] == RESPONSE_INIT for ids in evaluation.tok_input)
    text = "".join(evaluation.input) + "".join(evaluation.output)
    assert set(text) - set(map(chr, range(128))) == set("\u2019\u201c\u201d\u2014")
    bad = evaluation.system_prompt.isin(BAD_SYSTEM_PROMPTS)
    assert set(evaluation.origin[bad]) == {"cot", "flan"}
    without = evaluation.input[evaluation.system_prompt == ""]
    assert len(without)
    assert not without.str.contains("<<SYS>>").any()


@pytest.mark.skipif(not REFERENCE.is_file(), reason="MLPERF_INFERENCE_DIR names no checkout of mlcommons/inference")
def test_the_sets_are_those_of_the_reference(orca: pd.DataFrame, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    orca.to_parquet(tmp_path / "orca.parquet")
    options = [
        f"--dataset_pq_path={tmp_path / 'orca.parquet'}",
        f"--model_dir={model}",
        f"--seqlen_limit={LIMIT}",
        f"--num_total_samples={SAMPLES}",
        f"--calibration_subset_size={CALIBRATION}",
    ]
    ours = [sys.executable, "setup/processorca.py", *options, f"--export_dir={tmp_path / 'ours'}"]
    theirs = [sys.executable, str(REFERENCE), *options, f"--export_dir={tmp_path / 'theirs'}"]
    said = subprocess.run(ours, check=True, capture_output=True, text=True, cwd=CHECKOUT).stdout.split()
    subprocess.run(theirs, check=True, capture_output=True, env=os.environ | {"HF_HUB_OFFLINE": "1"})
    names = [f"open_orca_gpt4_tokenized_llama.{n}.pkl.gz" for n in (f"sampled_{SAMPLES}", f"calibration_{CALIBRATION}")]
    assert [Path(file).name for file in said] == names
    for name in names:
        found, expected = (read_pickle(tmp_path / whose / name) for whose in ("ours", "theirs"))
        assert [*found.items()] == [*expected.items()]


def test_files_can_be_read_by_any_pandas(built: tuple[pd.DataFrame, pd.DataFrame], tmp_path: Path) -> None:
    files = write(tmp_path / "new" / "folder", *built)
    assert [file.name for file in files] == [
        f"open_orca_gpt4_tokenized_llama.sampled_{SAMPLES}.pkl.gz",
        f"open_orca_gpt4_tokenized_llama.calibration_{CALIBRATION}.pkl.gz",
    ]
    assert sorted(files[0].parent.iterdir()) == sorted(files)
    assert read_pickle(files[0])["tok_input"] == built[0].tok_input.tolist()
    assert b"pyarrow" not in files[0].read_bytes()


def _drop(column: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda frame: frame.drop(columns=column)


def _empty(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(question=frame.question.where(frame.index != 7))


@pytest.mark.parametrize(
    ("spoil", "what", "told"),
    [
        (_drop("response"), "invalid OpenOrca parquet file", "response"),
        (_empty, "empty cell in data set", "column question, row 7"),
    ],
)
def test_another_parquet_file_is_refused(
    spoil: Callable[[pd.DataFrame], pd.DataFrame], what: str, told: str, orca: pd.DataFrame, tmp_path: Path
) -> None:
    spoil(orca).to_parquet(tmp_path / "file.parquet")
    with pytest.raises(ConfigError, match=what) as caught:
        read_parquet(tmp_path / "file.parquet")
    assert told in str(caught.value)
    assert str(tmp_path / "file.parquet") in caught.value.where


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_a_missing_or_broken_parquet_file_is_told(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "file.parquet"
    if content:
        file.write_bytes(content)
    with pytest.raises(ConfigError if content else EnvironmentMissing) as caught:
        read_parquet(file)
    assert caught.value.where == str(file)


@pytest.mark.parametrize(("samples", "calibration"), [(SAMPLES + 1, 1), (4000, 1), (4, 5)])
def test_counts_that_cannot_be_had_are_refused(samples: int, calibration: int, orca: pd.DataFrame, model: Path) -> None:
    with pytest.raises(ConfigError):
        build(orca, load_encoder(model / "tokenizer.json"), LIMIT, samples, calibration)


def test_a_missing_tokenizer_is_told(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="missing tokenizer"):
        load_encoder(tmp_path / "tokenizer.json")
