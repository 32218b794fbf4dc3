"""transformers' own generate, a batch at a time: the plain baseline, and what has beam search.

Nothing streams: a first token is known when its answer is whole, so this engine is for Offline, and for benchmarks
whose tokens LoadGen infers.
"""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from harness_llm.config.benchmark import Sampling
from harness_llm.protocol.counters import Counters
from harness_llm.replicas.engines.engine import Step

PADDING = 0  # masked, so that any id will do


class TransformersEngine:
    """One model on the accelerator, or on the CPU; `max_num_seqs` prompts make a batch."""

    def __init__(self, checkpoint: str, llm_config: dict[str, Any]) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=llm_config.get("dtype", "auto"))
        self._model = model.to(device).eval()
        self._batch = int(llm_config["max_num_seqs"])
        self._generation = GenerationConfig()
        self._waiting: dict[int, list[int]] = {}
        self.generated = 0

    def configure(self, sampling: Sampling, *, stream: bool) -> None:  # noqa: ARG002 - config refuses streams
        """Set how the next queries are sampled."""
        self._generation = generation_config(sampling)
        self.generated = 0

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:  # noqa: ARG002 - as below
        """Take in one query; there is one kind for all, and what does not stream has nothing reported."""
        self._waiting[query] = prompt

    def step(self) -> Step:
        """Answer the next batch: of those that wait, prompts of like length, so that little is padded."""
        queries = sorted(self._waiting, key=lambda query: len(self._waiting[query]))[: self._batch]
        prompts = [self._waiting.pop(query) for query in queries]
        answers = self._answer(prompts)
        self.generated += sum(map(len, answers))
        return Step(finished=list(zip(queries, answers, strict=True)))

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""
        return bool(self._waiting)

    @property
    def arrivals(self) -> None:
        """Nothing arrives: `step` computes."""

    def kv_cache(self) -> None:
        """Report no capacity: generate allocates the KV cache of each batch."""

    def counters(self) -> Counters:
        """Nothing to count: generate keeps no cache from one batch to the next, and no assistant model is given."""
        return {}

    def abort(self) -> None:
        """Drop all queries."""
        self._waiting.clear()

    def _answer(self, prompts: list[list[int]]) -> list[list[int]]:
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), PADDING)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        device = self._model.device
        with torch.inference_mode():
            rows = self._model.generate(
                ids.to(device), attention_mask=mask.to(device), generation_config=self._generation
            )
        return [until_end(row, self._generation.eos_token_id) for row in rows[:, longest:].tolist()]


def generation_config(sampling: Sampling) -> GenerationConfig:
    """`sampling` in transformers' words."""
    chance: dict[str, Any] = {}
    if sampling.temperature:
        chance = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    return GenerationConfig(
        do_sample=bool(chance),
        num_beams=sampling.beams,
        early_stopping=sampling.beams > 1,
        min_new_tokens=sampling.min_tokens,
        max_new_tokens=sampling.max_tokens,
        eos_token_id=list(sampling.stop_token_ids),
        pad_token_id=PADDING,
        **chance,
    )


def until_end(row: list[int], ends: list[int]) -> list[int]:
    """An answer without what generate padded it with; its end-of-sequence id stays."""
    places = [i for i, token in enumerate(row) if token in ends]
    return row[: places[0] + 1] if places else row
