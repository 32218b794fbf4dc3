import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

transformers = pytest.importorskip("transformers")

from harness_llm.evaluate.decoding import clean_up, decoder  # noqa: E402

CLEAN = transformers.PreTrainedTokenizerFast.clean_up_tokenization
WORDS = ["<s>", "It", "is", "n't", "here", ",", "'s", "so", "."]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[0]))
    tokenizer.add_special_tokens(["<s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize(("flag", "tidy"), [(None, False), (False, False), (True, True)])
def test_spaces_are_cleaned_where_the_tokenizer_demands_it(checkpoint: Path, flag: bool | None, tidy: bool) -> None:
    if flag is not None:
        (checkpoint / "tokenizer_config.json").write_text(json.dumps({"clean_up_tokenization_spaces": flag}))
    plain = Tokenizer.from_file(str(checkpoint / "tokenizer.json")).decode([0, 1, 2, 3, 4, 5, 1, 6, 7, 8])
    [text] = decoder(checkpoint)([[0, 1, 2, 3, 4, 5, 1, 6, 7, 8]])
    assert "<s>" not in text
    assert text == (clean_up(plain) if tidy else plain)


@given(st.lists(st.sampled_from([*WORDS, " ", "'", "?", "!", "'m", "'ve", "'re", "x"])).map(" ".join))
def test_cleaned_text_equals_that_of_transformers(text: str) -> None:
    assert clean_up(text) == CLEAN(None, text)


def test_spaces_before_punctuation_are_removed() -> None:
    assert clean_up("It is n't here , it 's so .") == "It isn't here, it's so."
