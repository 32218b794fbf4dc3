"""Answers of one checkpoint with one engine; run by benchmarks.quantization in any environment.

Run as `python -m benchmarks.answers SPEC`, with SPEC in JSON; the output is a JSON file with a list of ids per answer.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from harness_llm.config.benchmark import Sampling
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.engines.engine import build_engine


class AnswerSpec(BaseModel):
    """Engine and checkpoint, and the first `samples` prompts of `store` to answer."""

    engine: str
    checkpoint: Path
    llm_config: dict[str, Any]
    sampling: Sampling
    store: Path
    samples: int
    output: Path


def answer(spec: AnswerSpec) -> list[list[int]]:
    """Return the answers in the order of the prompts."""
    engine = build_engine(spec.engine, str(spec.checkpoint), spec.llm_config)
    engine.configure(spec.sampling, stream=False)
    store = open_store(spec.store)
    for index in range(spec.samples):
        engine.add(index, store.prompt(index).tolist())
    found: dict[int, list[int]] = {}
    while engine.busy:
        found.update((query, list(ids)) for query, ids in engine.step().finished)
    return [found[index] for index in range(spec.samples)]


if __name__ == "__main__":
    spec = AnswerSpec.model_validate_json(sys.argv[1])
    spec.output.write_text(json.dumps(answer(spec)))
