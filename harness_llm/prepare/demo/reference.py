"""Reference scores of the demo: greedy answers of the original checkpoint, and their scores.

`python -m harness_llm.prepare.demo.reference --checkpoint DIR --store DIR --samples N --max-tokens N --accuracy JSON
--output DIR`. Writes progress to standard output, one JSON object per line.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from transformers import LlamaForCausalLM

from harness_llm.config.benchmark import Accuracy
from harness_llm.evaluate.decoding import decoder
from harness_llm.evaluate.score import score_answers
from harness_llm.fileio import replacing
from harness_llm.prepare.demo.stages import reference_sources
from harness_llm.protocol.token_store import TokenStore, open_store

BATCH = 256


def batches(store: TokenStore, samples: int) -> Iterator[list[int]]:
    """Yield indices of the first `samples` prompts in batches of equal length.

    Without padding, an answer does not depend on its batch.
    """
    by_length: dict[int, list[int]] = defaultdict(list)
    for index, length in enumerate(store.lengths()[:samples].tolist()):
        by_length[length].append(index)
    for indices in by_length.values():
        for start in range(0, len(indices), BATCH):
            yield indices[start : start + BATCH]


def answer(model: LlamaForCausalLM, prompts: torch.Tensor, max_tokens: int) -> list[list[int]]:
    """Return greedy answers to prompts of equal length; each ends with EOS or has `max_tokens` ids."""
    generated = model.generate(
        prompts,
        attention_mask=torch.ones_like(prompts),
        do_sample=False,
        min_new_tokens=1,
        max_new_tokens=max_tokens,
    )
    end = model.generation_config.eos_token_id
    return [_until(row, end) for row in generated[:, prompts.shape[1] :].tolist()]


def _until(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids


def answers(model: LlamaForCausalLM, store: TokenStore, samples: int, max_tokens: int) -> list[list[int]]:
    """Return greedy answers to the first `samples` prompts in order."""
    found: dict[int, list[int]] = {}
    for indices in batches(store, samples):
        prompts = torch.tensor([store.prompt(index).tolist() for index in indices])
        found.update(zip(indices, answer(model, prompts, max_tokens), strict=True))
        _status(len(found) / samples, f"{len(found)}/{samples} reference answers")
    return [found[index] for index in range(samples)]


def scores(
    checkpoint: Path, store: TokenStore, answered: Sequence[Sequence[int]], accuracy: Accuracy
) -> dict[str, float]:
    """Return the scores of `answered` against the targets of the data set."""
    count = len(answered)
    return score_answers(answered, store.targets()[:count], store.kinds()[:count], decoder(checkpoint), accuracy)


def _status(done: float, text: str) -> None:
    print(json.dumps({"stage": "reference", "done": round(done, 3), "text": text}), flush=True)  # noqa: T201


def main() -> None:
    """Answer, score and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("--accuracy", type=Accuracy.model_validate_json, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    store = open_store(arguments.store)
    model = LlamaForCausalLM.from_pretrained(arguments.checkpoint)
    answered = answers(model, store, arguments.samples, arguments.max_tokens)
    record = reference_sources(arguments.checkpoint, store, arguments.max_tokens, arguments.accuracy) | {
        "samples": arguments.samples,
        "scores": scores(arguments.checkpoint, store, answered, arguments.accuracy),
    }
    with replacing(arguments.output) as folder:
        (folder / "answers.json").write_text(json.dumps(answered))
        (folder / "scores.json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
