"""Training of the demo, and reference answers that do not depend on the batch."""

import importlib
import json
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer

from harness_llm.config.checkpoint import read_record
from harness_llm.prepare.demo.corpus import Split, samples
from harness_llm.prepare.demo.tokenized import train_tokenizer, write_split
from harness_llm.protocol.token_store import open_store

pytestmark = pytest.mark.engine(seconds=15)


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def transformers(torch):
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def train(transformers):
    return importlib.import_module("harness_llm.prepare.demo.train")


@pytest.fixture(scope="module")
def reference(transformers):
    return importlib.import_module("harness_llm.prepare.demo.reference")


@pytest.fixture(scope="module")
def trained(train, tmp_path_factory):
    """A folder with a tokenizer, a checkpoint of three steps and a store."""
    folder = tmp_path_factory.mktemp("demo")
    tokenizer = folder / "tokenizer.json"
    train_tokenizer(tokenizer)
    with pytest.MonkeyPatch.context() as patch:
        arguments = ["train", "--tokenizer", str(tokenizer), "--output", str(folder / "model"), "--steps", "3"]
        patch.setattr("sys.argv", arguments)
        train.main()
    write_split(folder / "store", Split.EVALUATION, 40, Tokenizer.from_file(str(tokenizer)), longest=96)
    return folder


def test_loss_covers_the_answer_and_its_end_only(train, trained):
    tokenizer = Tokenizer.from_file(str(trained / "tokenizer.json"))
    chosen = samples(Split.TRAINING, 2 * train.BATCH, seed=9)
    seen = []
    for ids, labels in train.batches(train.pairs(chosen, tokenizer)):
        for row, label in zip(ids.tolist(), labels.tolist(), strict=True):
            answer = [token for token in label if token != train.IGNORED]
            assert answer[-1] == 2
            start = next(i for i, token in enumerate(label) if token != train.IGNORED)
            assert row[start : start + len(answer)] == answer
            seen.append((tokenizer.decode(row[:start]), tokenizer.decode(answer)))
    assert sorted(seen) == sorted((s.prompt, s.answer) for s in chosen)


def test_trained_checkpoint_is_complete(torch, transformers, train, trained):
    record = read_record(trained / "model", train.TRAINING)
    assert record["steps"] == 3
    assert set(record["files"]) == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert (trained / "model" / "tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()
    generation = json.loads((trained / "model" / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (1, 2)
    model = transformers.LlamaForCausalLM.from_pretrained(trained / "model")
    assert model.dtype == torch.float32
    assert 0.8e6 < model.num_parameters() < 1e6


def test_batched_answers_equal_single_answers(torch, transformers, reference, trained):
    model = transformers.LlamaForCausalLM.from_pretrained(trained / "model")
    store = open_store(trained / "store")
    together = reference.answers(model, store, 10, max_tokens=6)
    alone = [reference.answer(model, torch.tensor([store.prompt(i).tolist()]), 6)[0] for i in range(10)]
    assert together == alone


@pytest.mark.parametrize(
    ("generated", "expected"), [([5, 2, 0, 0], [5, 2]), ([5, 2, 2], [5, 2]), ([2, 0], [2]), ([5, 6], [5, 6])]
)
def test_answer_ends_with_its_first_eos(torch, reference, generated, expected):
    model = SimpleNamespace(
        generate=lambda prompts, **_: torch.cat([prompts, torch.tensor([generated])], dim=1),
        generation_config=SimpleNamespace(eos_token_id=2),
    )
    assert reference.answer(model, torch.tensor([[1, 2, 7]]), 4) == [expected]
