"""transformers' generate, one batch at a time: the reference baseline, with beam search.

There is no streaming: a first token is known only with the whole answer. So this engine serves Offline, and benchmarks
whose tokens LoadGen infers.
"""

from typing import Any

import torch
from transformers import AutoModelForCausalLM, GenerationConfig

from harness_llm.config.benchmark import Sampling
from harness_llm.protocol.counters import Counters
from harness_llm.protocol.messages import Activity
from harness_llm.replicas.engines.engine import Step

PADDING = 0  # masked, so any id is valid


class TransformersEngine:
    """One model on the accelerator or the CPU; a batch has `max_num_seqs` prompts."""

    def __init__(self, checkpoint: str, llm_config: dict[str, Any]) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=llm_config.get("dtype", "auto"))
        self._model = model.to(device).eval()
        self._batch = int(llm_config["max_num_seqs"])
        self._generation = GenerationConfig()
        self._waiting: dict[int, list[int]] = {}
        self.generated = 0

    def configure(self, sampling: Sampling, *, stream: bool) -> None:  # noqa: ARG002 - config rejects streams
        """Set the sampling of further queries."""
        self._generation = generation_config(sampling)
        self.generated = 0

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:  # noqa: ARG002 - as below
        """Add a query; all samples have the same kind, and without streaming no token is reported."""
        self._waiting[query] = prompt

    def step(self) -> Step:
        """Answer the next batch: waiting prompts of similar length, so that there is little padding."""
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
        """None: `step` computes."""

    def activity(self) -> Activity:
        """Return waiting queries and tokens; a batch is known only by its answers."""
        return Activity(self.generated, waiting=len(self._waiting))

    def kv_cache(self) -> None:
        """Return None: generate allocates a KV cache for each batch."""

    def counters(self) -> Counters:
        """Return no counters: generate keeps no cache between batches and has no assistant model."""
        return {}

    def abort(self) -> None:
        """Abort all queries."""
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
    """Convert `sampling` to transformers' configuration."""
    random: dict[str, Any] = {}
    if sampling.temperature:
        random = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
    return GenerationConfig(
        do_sample=bool(random),
        num_beams=sampling.beams,
        early_stopping=sampling.beams > 1,
        min_new_tokens=sampling.min_tokens,
        max_new_tokens=sampling.max_tokens,
        eos_token_id=list(sampling.stop_token_ids),
        pad_token_id=PADDING,
        **random,
    )


def until_end(row: list[int], ends: list[int]) -> list[int]:
    """Remove generate's padding from an answer; keep its end-of-sequence id."""
    places = [i for i, token in enumerate(row) if token in ends]
    return row[: places[0] + 1] if places else row
