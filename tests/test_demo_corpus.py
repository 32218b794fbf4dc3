"""The demo's corpus, tokenizer and stores."""

import pytest
from tokenizers import Tokenizer

from harness_llm.config.benchmark import load_benchmark
from harness_llm.errors import ConfigError
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.prepare.demo.corpus import KINDS, SEPARATOR, Split, samples, split_of
from harness_llm.prepare.demo.tokenized import BOS, EOS, PAD, VOCABULARY, train_tokenizer, write_split
from harness_llm.protocol.token_store import open_store

DATASET = load_benchmark("demo", Workspace(CHECKOUT)).dataset
EVALUATION = DATASET.of("performance")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer(file)
    return Tokenizer.from_file(str(file))


def test_splits_are_unique_and_disjoint():
    evaluation = {s.prompt for s in samples(Split.EVALUATION, EVALUATION.samples, seed=1)}
    others = [{s.prompt for s in samples(split, 5000, seed=1)} for split in (Split.CALIBRATION, Split.TRAINING)]
    assert len(evaluation) == EVALUATION.samples
    assert evaluation.isdisjoint(others[0])
    assert evaluation.isdisjoint(others[1])
    assert others[0].isdisjoint(others[1])


def test_prompt_belongs_to_the_split_it_was_drawn_for():
    for split in Split:
        assert {split_of(s.prompt) for s in samples(split, 200, seed=5)} == {split}


def test_corpus_depends_on_the_seed_only():
    first = samples(Split.TRAINING, 300, seed=7)
    assert first == samples(Split.TRAINING, 300, seed=7)
    assert first != samples(Split.TRAINING, 300, seed=8)


def test_every_kind_occurs():
    assert {s.kind for s in samples(Split.EVALUATION, 2000, seed=1)} == set(KINDS)


@pytest.mark.parametrize(
    ("kind", "expected"),
    {
        "added": lambda head, words: [*words, head[1]],
        "copies": lambda head, words: words * int(head[1]),
        "count": lambda head, words: ["there", "are", str(len(words)), "words"],
        "ends": lambda head, words: ["first", words[0], "last", words[-1]],
        "first": lambda head, words: ["the", "first", "word", "is", words[0]],
        "fronted": lambda head, words: [head[1], *words],
        "joined": lambda head, words: " and ".join(words).split(),
        "largest": lambda head, words: ["the", "largest", "is", max(words, key=int)],
        "last": lambda head, words: ["the", "last", "word", "is", words[-1]],
        "longest": lambda head, words: ["the", "longest", "is", max(words, key=len)],
        "numbered": lambda head, words: [x for i, w in enumerate(words, 1) for x in (str(i), w)],
        "position": lambda head, words: (
            ["the", head[3], "word", "is", words["first second third fourth fifth".split().index(head[3])]]  # noqa: SIM905
        ),
        "repeat": lambda head, words: words,
        "replaced": lambda head, words: [head[3] if w == head[1] else w for w in words],
        "reverse": lambda head, words: words[::-1],
        "sorted": lambda head, words: sorted(words, key=int),
        "swapped": lambda head, words: [words[-1], *words[1:-1], words[0]],
        "twice": lambda head, words: [w for w in words for _ in range(2)],
        "until": lambda head, words: words[: words.index(head[2]) + 1],
        "without": lambda head, words: [w for w in words if w != head[2]],
    }.items(),
)
def test_answers_are_exact(kind, expected):
    found = [s for s in samples(Split.TRAINING, 2000, seed=3) if s.kind == kind]
    assert found
    for sample in found:
        head, words = sample.prompt.removesuffix(SEPARATOR).split(": ")
        assert sample.answer.replace(",", "").replace(".", "").split() == expected(head.split(), words.split())


def test_tokens_have_the_ids_and_lengths_of_the_benchmark(tokenizer):
    assert [tokenizer.token_to_id(token) for token in (PAD, BOS, EOS)] == [0, 1, 2]
    assert tokenizer.get_vocab_size() <= VOCABULARY
    for sample in samples(Split.EVALUATION, 3000, seed=1):
        prompt = tokenizer.encode(sample.prompt).ids
        answer = tokenizer.encode(sample.answer, add_special_tokens=False).ids
        assert prompt[0] == 1
        assert 0 not in prompt + answer
        assert len(prompt) <= DATASET.longest_prompt
        assert 4 <= len(answer) + 1 <= 29
        assert tokenizer.decode(answer) == sample.answer


def test_written_split_decodes_to_its_prompts_and_answers(tokenizer, tmp_path):
    write_split(tmp_path / "store", Split.CALIBRATION, 20, tokenizer, longest=96)
    store = open_store(tmp_path / "store")
    assert len(store) == 20
    assert tokenizer.decode(store.prompt(3).tolist()).endswith(SEPARATOR)
    assert all(store.targets())


def test_too_long_prompt_is_refused(tokenizer, tmp_path):
    with pytest.raises(ConfigError, match=r"dataset\.longest_prompt"):
        write_split(tmp_path / "store", Split.CALIBRATION, 20, tokenizer, longest=5)
    assert not (tmp_path / "store").exists()
