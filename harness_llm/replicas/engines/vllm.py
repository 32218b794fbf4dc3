"""vLLM's LLMEngine without a tokenizer, driven by the replica's loop."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import ProfilerConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.outputs import RequestOutput
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind
from vllm.usage.usage_lib import UsageContext
from vllm.v1.engine import EngineCoreEventType, EngineCoreOutput, EngineCoreOutputs
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.metrics.stats import SchedulerStats

from harness_llm.config.benchmark import Sampling
from harness_llm.config.checkpoint import quantization_config
from harness_llm.protocol.counters import DRAFTS, SPECULATED, Counters
from harness_llm.protocol.kv_cache import KvCache
from harness_llm.protocol.messages import Activity
from harness_llm.replicas.engines.engine import Step
from harness_llm.replicas.engines.vllm_core import engine_core
from harness_llm.replicas.ray.connection import placement_group

Endings = Sequence[tuple[int, ...]]
"""Sequences of token ids that end an answer; vLLM supports only single ids, and strings with a tokenizer."""


def prepare_torch() -> None:
    """Disable oneDNN for torch's FP8 matrix product on CPUs.

    On CPUs with AVX512 and AMX (torch 2.13), oneDNN runs its FP8 reference kernel: 250 ms for a product of
    128 x 128 x 384, against 0.4 ms of torch's own kernel.
    """
    if current_platform.is_cpu():
        torch.backends.mkldnn.enabled = False


def enable_amx() -> None:
    """Request Linux's permission for AMX, which vLLM's bfloat16 attention uses without a request.

    Without it, the first product is an illegal instruction (Documentation/arch/x86/xstate.rst, dynamically enabled
    features).
    """
    if current_platform.is_cpu():
        torch.cpu._init_amx()  # noqa: SLF001 - torch has no public function


def has_integer_weights(checkpoint: Path) -> bool:
    """Return whether a checkpoint has integer weights, whose products vLLM's CPU build computes only with oneDNN."""
    groups = quantization_config(checkpoint).get("config_groups", {}).values()
    return any((group["weights"] or {}).get("type") == "int" for group in groups)


def prepare_process(checkpoint: Path) -> None:
    """Prepare torch for `checkpoint` in this process and in those that vLLM spawns."""
    enable_amx()
    if not has_integer_weights(checkpoint):
        prepare_torch()


def sampling_params(sampling: Sampling, *, stream: bool) -> SamplingParams:
    """Convert `sampling` to vLLM's parameters: token ids in one output, or with `stream` the first token and the rest.

    Only `sampling.stop_token_ids` end an answer. Without `ignore_eos`, vLLM adds those of the checkpoint's
    generation_config.json, also with generation_config=vllm (vllm/sampling_params.py, update_from_generation_config).

    vLLM's front end sends the first and the last token immediately for every `stream_interval`
    (vllm/v1/engine/output_processor.py, make_request_output). Outputs in between are not needed and cost time.
    """
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_tokens=sampling.min_tokens,
        max_tokens=sampling.max_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA if stream else RequestOutputKind.FINAL_ONLY,
        stream_interval=sampling.max_tokens if stream else None,
    )


def load_engine(checkpoint: str, llm_config: dict[str, Any], workers: str = "", traces: str = "") -> "VllmEngine":
    """Load `checkpoint`.

    Statistics are enabled because they contain preemptions. The front end's statistics per token and query are
    disabled: `step` passes no object for them to vLLM's output processor.

    Args:
        workers: Ray placement group of the workers of vLLM's ray executor, which otherwise creates one.
        traces: folder for traces of torch's profiler; empty for none.
    """
    prepare_process(Path(checkpoint))
    if traces:
        llm_config = llm_config | {"profiler_config": torch_profiler(traces)}
    config = EngineArgs(model=checkpoint, **llm_config).create_engine_config(UsageContext.ENGINE_CONTEXT)
    if workers:
        config.parallel_config.placement_group = placement_group(workers)
    return VllmEngine(LLMEngine.from_vllm_config(config, disable_log_stats=llm_config["disable_log_stats"]))


def torch_profiler(folder: str) -> ProfilerConfig:
    """Return vLLM's settings of torch's profiler; without stacks and tables, which are large for many events."""
    return ProfilerConfig(
        profiler="torch",
        torch_profiler_dir=folder,
        torch_profiler_with_stack=False,
        torch_profiler_dump_cuda_time_total=False,
    )


def count_preemptions(outputs: Sequence[EngineCoreOutput]) -> int:
    """Count the preemptions in a batch of outputs; a sequence reports a preemption with its next token."""
    return sum(
        event.type is EngineCoreEventType.PREEMPTED for output in outputs if output.events for event in output.events
    )


def add_drafts(drafted: Counters, batch: EngineCoreOutputs) -> Counters:
    """Return `drafted` plus the drafts that the scheduler reports with a batch of outputs."""
    stats = batch.scheduler_stats.spec_decoding_stats if batch.scheduler_stats else None
    if stats is None:
        return drafted
    return {SPECULATED: drafted[SPECULATED] + stats.num_draft_tokens, DRAFTS: drafted[DRAFTS] + stats.num_drafts}


def ends(answer: Sequence[int], endings: Endings) -> bool:
    """Return whether `answer` ends with one of `endings`."""
    return any(tuple(answer[-len(ending) :]) == ending for ending in endings)


class VllmEngine:
    """One vLLM engine; one output per answer, unless first tokens are requested."""

    def __init__(self, engine: LLMEngine) -> None:
        self._engine = engine
        self._core = engine_core(engine.engine_core)
        self._preemptions = 0
        self._stats = SchedulerStats()
        self._drafted: Counters = {SPECULATED: 0, DRAFTS: 0} if engine.vllm_config.speculative_config else {}
        self._params = SamplingParams()
        self._stream = False
        self.generated = 0
        self._endings: Mapping[str, Endings] = {}
        self._answers: dict[str, list[int]] = {}
        self._watched: dict[str, Endings] = {}

    def configure(self, sampling: Sampling, *, stream: bool) -> None:
        """Set the sampling of further queries, and whether first tokens are reported."""
        self._stream = stream
        self.generated = 0
        self._endings = sampling.stop_sequences
        self._params = sampling_params(sampling, stream=stream)

    def add(self, query: int, prompt: list[int], kind: str = "", reported: int = 0) -> None:
        """Add a query, of a sample of `kind`; raise ValueError if the prompt cannot be served."""
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
        """Return the parameters of a query: fewer tokens after `reported` ones, one output per token with `endings`."""
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
        """Process outputs of the engine core: of the next step, or all that have arrived from its own process."""
        step = Step()
        for batch in self._core.take():
            for output in self._processed(batch):
                self._take(output, step)
        return step

    def _processed(self, batch: EngineCoreOutputs) -> list[RequestOutput]:
        self.generated += sum(len(output.new_token_ids) for output in batch.outputs)
        self._preemptions += count_preemptions(batch.outputs)
        self._stats = batch.scheduler_stats or self._stats
        self._drafted = add_drafts(self._drafted, batch)
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
        """Raise ValueError unless the answer ends with a stop token or has max_tokens."""
        if reason == "stop" or (reason == "length" and len(answer) == self._params.max_tokens):
            return
        raise ValueError(f"incomplete answer of {len(answer)} tokens: {reason}")

    @property
    def busy(self) -> bool:
        """Whether any query is unfinished."""
        return bool(self._answers)

    @property
    def arrivals(self) -> int | None:
        """Readable while the engine core has outputs; None if the core is in this process and `step` computes."""
        return self._core.arrivals

    def counters(self) -> Counters:
        """Return draft tokens and drafts with speculative decoding; config fixes enable_prefix_caching to false."""
        return dict(self._drafted)

    def activity(self) -> Activity:
        """Return tokens, and the scheduler's figures after the last step."""
        stats = self._stats
        return Activity(
            self.generated,
            running=stats.num_running_reqs,
            waiting=stats.num_waiting_reqs + stats.num_skipped_waiting_reqs,
            kv_cache_use=stats.kv_cache_usage,
            preemptions=self._preemptions,
        )

    def kv_cache(self) -> KvCache:
        """Return the capacity that vLLM computed at the start, and preemptions since."""
        cache = self._engine.vllm_config.cache_config
        return KvCache(
            tokens=cache.kv_cache_size_tokens,
            blocks=cache.num_gpu_blocks,
            block_size=cache.block_size,
            max_concurrency=cache.kv_cache_max_concurrency,
            preemptions=self._preemptions,
        )

    def profile(self, *, on: bool) -> None:
        """Start the profilers of all workers, or stop them, which writes the traces."""
        if on:
            self._engine.start_profile()
        else:
            self._engine.stop_profile()

    def abort(self) -> None:
        """Abort all queries."""
        self._engine.abort_request(list(self._answers))
        self._answers.clear()
        self._watched.clear()
