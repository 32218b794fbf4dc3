"""What the demo is trained on and by, and that reference answers do not depend on the batch."""

import json
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer

from harness_llm.config.checkpoint import read_record
from harness_llm.prepare.demo.corpus import Split, samples
from harness_llm.prepare.demo.tokenized import train_tokenizer, write_split
from harness_llm.protocol.token_store import open_store

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from harness_llm.prepare.demo import reference, train  # noqa: E402


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
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


def test_the_loss_is_on_the_answer_and_its_end_alone(trained):
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


def test_a_checkpoint_is_complete(trained):
    record = read_record(trained / "model", train.TRAINING)
    assert record["steps"] == 3
    assert set(record["files"]) == {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert (trained / "model" / "tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()
    generation = json.loads((trained / "model" / "generation_config.json").read_text())
    assert (generation["bos_token_id"], generation["eos_token_id"]) == (1, 2)
    model = transformers.LlamaForCausalLM.from_pretrained(trained / "model")
    assert model.dtype == torch.float32
    assert 0.8e6 < model.num_parameters() < 1e6


def test_answers_in_batches_are_those_of_each_prompt_alone(trained):
    model = transformers.LlamaForCausalLM.from_pretrained(trained / "model")
    store = open_store(trained / "store")
    together = reference.answers(model, store, 10, max_tokens=6)
    alone = [reference.answer(model, torch.tensor([store.prompt(i).tolist()]), 6)[0] for i in range(10)]
    assert together == alone


@pytest.mark.parametrize(
    ("generated", "expected"), [([5, 2, 0, 0], [5, 2]), ([5, 2, 2], [5, 2]), ([2, 0], [2]), ([5, 6], [5, 6])]
)
def test_an_answer_ends_with_its_first_eos(generated, expected):
    model = SimpleNamespace(
        generate=lambda prompts, **_: torch.cat([prompts, torch.tensor([generated])], dim=1),
        generation_config=SimpleNamespace(eos_token_id=2),
    )
    assert reference.answer(model, torch.tensor([[1, 2, 7]]), 4) == [expected]
