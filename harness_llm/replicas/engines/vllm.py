"""vLLM: its LLMEngine without a tokenizer, fed and read by the replica's loop."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.outputs import RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine import EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs
from vllm.v1.engine.llm_engine import LLMEngine

from harness_llm.config.benchmark import Sampling
from harness_llm.config.checkpoint import quantization_config
from harness_llm.protocol.counters import DRAFTS, SPECULATED, Counters
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.replicas.engines.engine import Step
from harness_llm.replicas.engines.vllm_core import engine_core
from harness_llm.replicas.ray.connection import placement_group

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


def prepare_process(checkpoint: Path) -> None:
    """Prepare torch for `checkpoint` in a process that computes: this one, and those that vLLM spawns."""
    ask_for_amx()
    if not multiplies_integers(checkpoint):
        prepare_torch()


def sampling_params(sampling: Sampling, *, stream: bool) -> SamplingParams:
    """`sampling` as vLLM's parameters: token ids, in one piece, or with `stream` the first token and then the rest.

    vLLM's front end sends the first and the last token at once, whatever `stream_interval` is
    (vllm/v1/engine/output_processor.py, make_request_output); nothing reads those in between, and each would cost it
    an output object.
    """
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_tokens=sampling.min_tokens,
        max_tokens=sampling.max_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        detokenize=False,
        output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
        stream_interval=sampling.max_tokens if stream else None,
    )


def load_engine(checkpoint: str, llm_config: dict[str, Any], workers: str = "") -> "VllmEngine":
    """Load `checkpoint`.

    Statistics are on: they carry preemptions. Those of the front end, per token and query, stay off, as `step` passes
    vLLM's output processor no object to write them into.

    Args:
        workers: the Ray placement group for the workers of vLLM's ray executor, which otherwise creates another one.
    """
    prepare_process(Path(checkpoint))
    config = EngineArgs(model=checkpoint, **llm_config).create_engine_config(UsageContext.ENGINE_CONTEXT)
    if workers:
        config.parallel_config.placement_group = placement_group(workers)
    return VllmEngine(LLMEngine.from_vllm_config(config, disable_log_stats=llm_config["disable_log_stats"]))


def count_preemptions(outputs: Sequence[EngineCoreOutput]) -> int:
    """Preemptions that a batch of outputs reports; a preempted sequence reports it with its next token."""
    return sum(
        event.type is EngineCoreEventType.PREEMPTED for output in outputs if output.events for event in output.events
    )


def added(drafted: Counters, batch: EngineCoreOutputs) -> Counters:
    """`drafted` with the drafts that the scheduler reports with a batch of outputs."""
    stats = batch.scheduler_stats.spec_decoding_stats if batch.scheduler_stats else None
    if stats is None:
        return drafted
    return {SPECULATED: drafted[SPECULATED] + stats.num_draft_tokens, DRAFTS: drafted[DRAFTS] + stats.num_drafts}


def ends(answer: Sequence[int], endings: Endings) -> bool:
    """Whether `answer` ends with one of `endings`."""
    return any(tuple(answer[-len(ending) :]) == ending for ending in endings)


class VllmEngine:
    """One vLLM engine; answers final-only unless first tokens are asked for."""

    def __init__(self, engine: LLMEngine) -> None:
        self._engine = engine
        self._core = engine_core(engine.engine_core)
        self._preemptions = 0
        self._drafted: Counters = {SPECULATED: 0, DRAFTS: 0} if engine.vllm_config.speculative_config else {}
        self._params = SamplingParams()
        self._stream = False
        self.generated = 0
        self._endings: Mapping[str, Endings] = {}
        self._answers: dict[str, list[int]] = {}
        self._watched: dict[str, Endings] = {}

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set how the next queries are sampled, and whether first tokens are reported."""
        self._stream = stream
        self.generated = 0
        self._endings = sampling.stop_sequences
        self._params = sampling_params(sampling, stream=stream)

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        """Take in one query of a `kind` of samples; raises ValueError when the prompt cannot be served."""
        key = str(query)
        endings = self._endings.get(kind, ())
        try:
            self._engine.add_request(key, {"prompt_token_ids": prompt}, self._params_of(reported, endings))
        except VLLMValidationError as error:
            raise ValueError(str(error)) from error
        self._answers[key] = prompt[len(prompt) - reported :]
        if endings:
            self._watched[key] = endings

    def _params_of(self, reported: int, endings: Endings) -> SamplingParams:
        """The parameters of one query: fewer tokens after `reported` ones, every token by itself with `endings`."""
        params = self._params
        if not (reported or endings):
            return params
        params = params.clone()
        params.min_tokens = max(params.min_tokens - reported, 0)
        params.max_tokens -= reported
        if endings:
            params.output_kind, params.stream_interval = RequestOutputKind.DELTA, None
        return params

    def step(self) -> Step:
        """Process the outputs of the engine core: of the next step, or of all that it has made in its own process."""
        step = Step()
        for batch in self._core.take():
            for output in self._processed(batch):
                self._take(output, step)
        return step

    def _processed(self, batch: EngineCoreOutputs) -> list[RequestOutput]:
        self.generated += sum(len(output.new_token_ids) for output in batch.outputs)
        self._preemptions += count_preemptions(batch.outputs)
        self._drafted = added(self._drafted, batch)
        processed = self._engine.output_processor.process_outputs(batch.outputs, batch.timestamp)
        outputs: list[RequestOutput] = processed.request_outputs
        return outputs

    def _take(self, output: RequestOutput, step: Step) -> None:
        key, new = output.request_id, output.outputs[0].token_ids
        answer = self._answers[key]
        if self._stream and new and not answer:
            step.first.append((int(key), new[0]))
        answer += new
        if output.finished:
            self._require_whole(output.outputs[0].finish_reason, answer)
            step.finished.append((int(key), self._drop(key)))
        elif ends(answer, self._watched.get(key, ())):
            self._engine.abort_request([key])
            step.finished.append((int(key), self._drop(key)))

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
    def arrivals(self) -> int | None:
        """Readable while the engine core has outputs; None where the core is in this process and `step` computes."""
        return self._core.arrivals

    def counters(self) -> Counters:
        """Speculated tokens and their drafts, where it speculates; config fixes enable_prefix_caching to false."""
        return dict(self._drafted)

    def kv_cache(self) -> KvCache:
        """Capacity as vLLM computed it at the start, and preemptions since."""
        cache = self._engine.vllm_config.cache_config
        return KvCache(
            tokens=cache.kv_cache_size_tokens,
            blocks=cache.num_gpu_blocks,
            block_size=cache.block_size,
            max_concurrency=cache.kv_cache_max_concurrency,
            preemptions=self._preemptions,
        )

    def abort(self) -> None:
        """Drop all queries."""
        self._engine.abort_request(list(self._answers))
        self._answers.clear()
        self._watched.clear()
