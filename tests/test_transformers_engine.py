"""The plain engine on a tiny model: what generate gives alone is what it gives in a padded batch."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from harness_llm.config.benchmark import Sampling
from harness_llm.replicas.engines.engine import build_engine

pytestmark = pytest.mark.engine(seconds=15)

PROMPTS = [[1, 5, 9], [1, 7], [1, 3, 3, 8, 11], [1]]
GREEDY = Sampling(temperature=0, min_tokens=2, max_tokens=6, stop_token_ids=(2,))


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def transformers(torch: Any) -> Any:
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def adapter(transformers: Any) -> Any:
    """The module under test, which loads torch."""
    return importlib.import_module("harness_llm.replicas.engines.transformers")


@pytest.fixture(scope="module")
def checkpoint(torch: Any, transformers: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny")
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def answers(checkpoint: Path, sampling: Sampling, batch: int) -> dict[int, list[int]]:
    engine = build_engine("transformers", str(checkpoint), {"max_num_seqs": batch, "dtype": "float32"})
    engine.configure(sampling, stream=False)
    for query, prompt in enumerate(PROMPTS):
        engine.add(query, prompt)
    found: dict[int, list[int]] = {}
    while engine.busy:
        step = engine.step()
        assert len(step.finished) <= batch
        found |= dict(step.finished)
    assert engine.generated == sum(map(len, found.values()))
    return found


@pytest.mark.parametrize("beams", [1, 4])
def test_batch_answers_equal_single_answers(
    torch: Any, transformers: Any, adapter: Any, checkpoint: Path, beams: int
) -> None:
    sampling = GREEDY.changed({"beams": beams})
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype="float32").eval()
    found = answers(checkpoint, sampling, batch=3)
    for query, prompt in enumerate(PROMPTS):
        row = model.generate(torch.tensor([prompt]), generation_config=adapter.generation_config(sampling))[0]
        assert found[query] == adapter.until_end(row[len(prompt) :].tolist(), [2])
        assert 2 <= len(found[query]) <= 6


def test_beam_search_finds_other_answers(checkpoint: Path) -> None:
    assert answers(checkpoint, GREEDY, 4) != answers(checkpoint, GREEDY.changed({"beams": 4}), 4)


def test_answer_ends_with_its_first_stop_token(adapter: Any) -> None:
    assert adapter.until_end([5, 6, 2, 0, 0], [2]) == [5, 6, 2]
    assert adapter.until_end([5, 6, 7], [2]) == [5, 6, 7]
    assert adapter.until_end([3, 2, 4], [2, 3]) == [3]


def test_aborted_queries_are_not_answered(checkpoint: Path) -> None:
    engine = build_engine("transformers", str(checkpoint), {"max_num_seqs": 2})
    engine.configure(GREEDY, stream=False)
    engine.add(0, [1])
    engine.abort()
    assert not engine.busy
