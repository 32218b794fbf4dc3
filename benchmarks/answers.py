"""The answers of one checkpoint by one engine; a program for benchmarks.quantization, in any environment.

`python -m benchmarks.answers ORDER`, ORDER being JSON; the answers land in a JSON file, a list of token ids each.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from harness_llm.config.benchmark import Sampling
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.engines.engine import build_engine


class Order(BaseModel):
    """The first `samples` prompts of `store`, asked of `checkpoint`."""

    engine: str
    checkpoint: Path
    llm_config: dict[str, Any]
    sampling: Sampling
    store: Path
    samples: int
    output: Path


def answer(order: Order) -> list[list[int]]:
    """Answers in the order of the prompts."""
    engine = build_engine(order.engine, str(order.checkpoint), order.llm_config)
    engine.configure(order.sampling, stream=False)
    store = open_store(order.store)
    for index in range(order.samples):
        engine.add(index, store.prompt(index).tolist())
    found: dict[int, list[int]] = {}
    while engine.busy:
        found.update((query, list(ids)) for query, ids in engine.step().finished)
    return [found[index] for index in range(order.samples)]


if __name__ == "__main__":
    order = Order.model_validate_json(sys.argv[1])
    order.output.write_text(json.dumps(answer(order)))
