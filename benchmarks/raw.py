"""Arm without the harness: a process that calls vllm.LLM.generate on request.

Run as `python -m benchmarks.raw SPEC.json`. Engine arguments, sampling, environment and cores are the replica's.
LLM() differs only in its usage context, which has no effect if max_num_seqs and max_num_batched_tokens are set.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import numpy as np
import zmq

from benchmarks.arms import RawSpec
from harness_llm.config.benchmark import Sampling
from harness_llm.protocol.child_processes import Parent
from harness_llm.protocol.token_store import TokenStore, open_store

Prompts = list[dict[str, list[int]]]
Generate = Callable[[Prompts, Sampling], int]


def _prompts(store: TokenStore, indices: Iterable[int]) -> Prompts:
    return [{"prompt_token_ids": store.prompt(index).tolist()} for index in indices]


def load(spec: RawSpec) -> Generate:
    """Load vllm.LLM on this process's cores; return a function that answers prompts and returns the number of tokens.

    vLLM is imported here because OpenMP counts the cores when it is loaded: two threads on one core are very slow.
    """
    from vllm import LLM  # noqa: PLC0415

    from harness_llm.replicas.engines.vllm import prepare_torch, sampling_params  # noqa: PLC0415

    prepare_torch()
    # The harness counts preemptions. Raw vLLM need not: with statistics, LLM() would write them for every token.
    llm = LLM(model=spec.checkpoint, **spec.llm_config | {"disable_log_stats": True})

    def generate(prompts: Prompts, sampling: Sampling) -> int:
        outputs = llm.generate(prompts, sampling_params(sampling, stream=False), use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return generate


def serve(generate: Generate, spec: RawSpec, sampling: Sampling, parent: Parent) -> None:
    """Until the process exits: receive a number of passes, answer them, report tokens and seconds."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
    socket.bind(spec.endpoint)
    store = open_store(Path(spec.store))
    order = np.random.default_rng(0)
    parent.send(event="ready")
    while True:
        passes = int(socket.recv())
        # LoadGen shuffles every pass, too.
        prompts = _prompts(store, np.concatenate([order.permutation(spec.samples) for _ in range(passes)]))
        begin = time.perf_counter()
        tokens = generate(prompts, sampling)
        parent.send(event="done", tokens=tokens, seconds=time.perf_counter() - begin)


def main() -> None:
    """Load the engine, warm up like a replica, and serve."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RawSpec)
    parent = Parent(clean_up=Path(sys.argv[1]).parent)
    os.sched_setaffinity(0, spec.cpus)
    generate = load(spec)
    sampling = Sampling.model_validate(spec.sampling)
    store = open_store(Path(spec.warm_up_store))
    warm_up = _prompts(store, (i % len(store) for i in range(spec.llm_config["max_num_seqs"])))
    generate(warm_up, sampling.model_copy(update={"stop_token_ids": ()}))
    serve(generate, spec, sampling, parent)


if __name__ == "__main__":
    main()
