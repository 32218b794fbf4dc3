"""The arm without the harness: a process that calls vllm.LLM.generate when it is told to.

Run as `python -m benchmarks.raw SPEC.json`. Engine arguments, sampling, environment and cores are those of the fleet's
replica; LLM() differs from it in its usage context alone, which decides nothing once max_num_seqs and
max_num_batched_tokens are given.
"""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import zmq
from vllm import LLM

from harness_llm.benchmarks import Sampling
from harness_llm.datasets.store import TokenStore, open_store
from harness_llm.engines.vllm import prepare_torch, sampling_params
from harness_llm.processes import Parent


class RawSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is started with; `samples` are the first so many of the store.

    Attributes:
        endpoint: where the number of passes over the samples is awaited.
    """

    checkpoint: str
    llm_config: dict[str, Any]
    sampling: dict[str, float | list[int]]
    endpoint: str
    cpus: list[int]
    store: str
    samples: int
    warm_up_store: str
    warm_up_samples: int


def _prompts(store: TokenStore, indices: Iterable[int]) -> list[dict[str, list[int]]]:
    return [{"prompt_token_ids": store.prompt(index).tolist()} for index in indices]


def generate(llm: Any, prompts: list[dict[str, list[int]]], sampling: Sampling) -> int:
    """Answer `prompts`; returns how many tokens that made."""
    outputs = llm.generate(prompts, sampling_params(sampling, stream=False), use_tqdm=False)
    return sum(len(output.outputs[0].token_ids) for output in outputs)


def serve(llm: Any, spec: RawSpec, sampling: Sampling, parent: Parent) -> None:
    """Until the process is ended: take a number of passes, answer them, say how long that took."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL)
    socket.bind(spec.endpoint)
    store = open_store(Path(spec.store))
    order = np.random.default_rng(0)
    parent.say(event="ready")
    while True:
        passes = int(socket.recv())
        # LoadGen shuffles every pass too.
        prompts = _prompts(store, np.concatenate([order.permutation(spec.samples) for _ in range(passes)]))
        begin = time.perf_counter()
        tokens = generate(llm, prompts, sampling)
        parent.say(event="done", tokens=tokens, seconds=time.perf_counter() - begin)


def main() -> None:
    """Load, warm up, serve."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=RawSpec)
    parent = Parent()
    os.sched_setaffinity(0, spec.cpus)
    prepare_torch()
    llm = LLM(model=spec.checkpoint, **spec.llm_config)
    sampling = Sampling.model_validate(spec.sampling)
    store = open_store(Path(spec.warm_up_store))
    warm_up = _prompts(store, (i % len(store) for i in range(spec.warm_up_samples)))
    generate(llm, warm_up, sampling.model_copy(update={"stop_token_ids": ()}))
    serve(llm, spec, sampling, parent)


if __name__ == "__main__":
    main()
