"""vLLM, driven by add_request and step in the replica's own process."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine.llm_engine import LLMEngine

from harness_llm.benchmarks import Sampling
from harness_llm.checkpoint import quantization_config
from harness_llm.engines import Counters, Step
from harness_llm.fleet.ray_link import placement_group

Endings = Sequence[tuple[int, ...]]
"""Runs of token ids that end an answer; vLLM itself knows single ids, and texts only with a tokenizer."""


def prepare_torch() -> None:
    """Keep torch's FP8 product off oneDNN on CPUs.

    Where oneDNN takes FP8 (AVX512 with AMX, torch 2.13) it runs its reference kernel: 250 ms for a product of
    128 x 128 x 384 against 0.4 ms of torch's own.
    """
    if current_platform.is_cpu():
        torch.backends.mkldnn.enabled = False


def ask_for_amx() -> None:
    """Let this process use AMX where the CPU has it: vLLM's attention in bfloat16 does, without asking Linux for leave.

    Its first product is an illegal instruction then (Documentation/arch/x86/xstate.rst, dynamically enabled features).
    """
    if current_platform.is_cpu():
        torch.cpu._init_amx()  # noqa: SLF001 - torch has no other name for it


def multiplies_integers(checkpoint: Path) -> bool:
    """Whether the weights of a checkpoint are integers, whose products vLLM's CPU build has in oneDNN alone."""
    groups = quantization_config(checkpoint).get("config_groups", {}).values()
    return any((group["weights"] or {}).get("type") == "int" for group in groups)


def sampling_params(sampling: Sampling, *, stream: bool) -> SamplingParams:
    """`sampling` in vLLM's words; answers are token ids, and come whole unless `stream`."""
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_tokens=sampling.min_tokens,
        max_tokens=sampling.max_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
    )


def over_nodes(arguments: EngineArgs, workers: str) -> LLMEngine:
    """An engine whose ray executor uses the placement group `workers`; by itself it would ask for another one."""
    config = arguments.create_engine_config(UsageContext.ENGINE_CONTEXT)
    config.parallel_config.placement_group = placement_group(workers)
    return LLMEngine.from_vllm_config(config, disable_log_stats=arguments.disable_log_stats)


def ends(answer: Sequence[int], endings: Endings) -> bool:
    """Whether `answer` ends with one of `endings`."""
    return any(tuple(answer[-len(ending) :]) == ending for ending in endings)


class VllmEngine:
    """One vLLM engine; answers final-only unless first tokens are asked for."""

    def __init__(self, checkpoint: str, llm_config: dict[str, Any], workers: str = "") -> None:
        """Load `checkpoint`; `workers` names the Ray placement group that vLLM's ray executor puts its workers into."""
        ask_for_amx()
        if not multiplies_integers(Path(checkpoint)):
            prepare_torch()
        arguments = EngineArgs(model=checkpoint, **llm_config)
        self._engine = over_nodes(arguments, workers) if workers else LLMEngine.from_engine_args(arguments)
        self._params = SamplingParams()
        self._stream = False
        self._endings: Mapping[str, Endings] = {}
        self._answers: dict[str, list[int]] = {}
        self._watched: dict[str, Endings] = {}

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set how the next queries are sampled, and whether first tokens are reported."""
        self._stream = stream
        self._endings = sampling.stop_sequences
        self._params = sampling_params(sampling, stream=stream)

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        """Take in one query of a `kind` of samples; raises ValueError when the prompt cannot be served."""
        key, params = str(query), self._params
        if kind in self._endings or reported:
            params = params.clone()
            params.output_kind = RequestOutputKind.DELTA
            params.min_tokens = max(params.min_tokens - reported, 0)
            params.max_tokens -= reported
        if kind in self._endings:
            self._watched[key] = self._endings[kind]
        try:
            self._engine.add_request(key, {"prompt_token_ids": prompt}, params)
        except VLLMValidationError as error:
            raise ValueError(str(error)) from error
        self._answers[key] = prompt[len(prompt) - reported :]

    def step(self) -> Step:
        """Advance all queries by one scheduling step."""
        step = Step()
        for output in self._engine.step():
            key = output.request_id
            answer = self._answers[key]
            new = output.outputs[0].token_ids
            if self._stream and new and not answer:
                step.first.append((int(key), new[0]))
            answer += new
            if output.finished:
                self._require_whole(output.outputs[0].finish_reason, answer)
                step.finished.append((int(key), self._drop(key)))
            elif ends(answer, self._watched.get(key, ())):
                self._engine.abort_request([key])
                step.finished.append((int(key), self._drop(key)))
        return step

    def _drop(self, key: str) -> list[int]:
        self._watched.pop(key, None)
        return self._answers.pop(key)

    def _require_whole(self, reason: str | None, answer: list[int]) -> None:
        """An answer ends with a stop token or has all the tokens it may have; anything else was cut."""
        if reason == "stop" or (reason == "length" and len(answer) == self._params.max_tokens):
            return
        raise ValueError(f"an answer was cut after {len(answer)} tokens: {reason}")

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""
        return bool(self._answers)

    @property
    def arrivals(self) -> None:
        """Nothing arrives: `step` computes."""

    def counters(self) -> Counters:
        """Nothing to count: config fixes enable_prefix_caching to false, and refuses what would speculate."""
        return {}

    def abort(self) -> None:
        """Drop all queries."""
        self._engine.abort_request(list(self._answers))
        self._answers.clear()
        self._watched.clear()
