"""The engine over HTTP with the real `vllm serve`, started once."""

import json
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from waiting import is_alive

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import load_benchmark
from harness_llm.config.engine_config import load_config
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.engines.engine import ServerSpec, build_engine
from harness_llm.replicas.local import replica_environment

pytestmark = [pytest.mark.engine(seconds=60), pytest.mark.slow]

SAMPLES = 40
# FP8 answers as the original does, but for a few.
LIKE = 0.8


@pytest.fixture(scope="module")
def engine(assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    workspace, folder = Workspace(CHECKOUT), tmp_path_factory.mktemp("server")
    benchmark = load_benchmark("demo", workspace)
    config = load_config(benchmark, "Server", "cpu", (), workspace)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in replica_environment(config, [0], folder=folder, cache=workspace.cache).items():
            patch.setenv(name, value)
        spec = ServerSpec(
            kind="vllm", url="", command="", connections=64, attempts=3, timeout_s=60, log=str(folder / "server.log")
        )
        engine: Any = build_engine("openai", str(assets.checkpoint), config.llm_config, spec)
    engine.sampling = benchmark.sampling
    yield engine
    family = psutil.Process(engine._server.child.process.pid).children(recursive=True)
    assert len(family) > 1  # the API server, its engine core
    engine.close()
    deadline = time.monotonic() + 120
    while any(map(is_alive, family)):
        assert time.monotonic() < deadline, "the server outlives the engine"
        time.sleep(0.1)


@pytest.fixture
def serve(engine: Any, assets: Assets) -> Callable[..., tuple[dict[int, int], dict[int, list[int]]]]:
    store = open_store(assets.store("performance"))

    def serve(*, stream: bool) -> tuple[dict[int, int], dict[int, list[int]]]:
        engine.configure(engine.sampling, stream=stream)
        first: dict[int, int] = {}
        finished: dict[int, list[int]] = {}
        for index in range(SAMPLES):
            engine.add(index, store.prompt(index).tolist())
        while engine.busy:
            assert select.select([engine.arrivals], [], [], 60)[0]
            step = engine.step()
            assert all(query not in finished for query, _ in step.first)
            first |= dict(step.first)
            finished |= dict(step.finished)
        return first, finished

    return serve


def test_streamed_and_complete_answers_equal_those_of_the_reference(
    engine: Any, assets: Assets, serve: Callable[..., tuple[dict[int, int], dict[int, list[int]]]]
) -> None:
    assert assets.reference
    right = json.loads((assets.reference.parent / "answers.json").read_text())[:SAMPLES]
    for stream in (True, False):
        first, finished = serve(stream=stream)
        assert sum(finished[index] == ids for index, ids in enumerate(right)) > LIKE * SAMPLES
        assert all(ids[-1] == 2 or len(ids) == engine.sampling.max_tokens for ids in finished.values())
        assert first == ({index: ids[0] for index, ids in finished.items()} if stream else {})
    # The same prompts twice, without a cache hit.
    assert engine.counters() == {"cache_hits": 0, "speculated": 0, "drafts": 0}
    cache = engine.kv_cache()
    assert cache.tokens >= cache.max_concurrency * 256 - 1 > 0  # max_model_len
    assert cache.blocks * cache.block_size >= cache.tokens
    assert cache.preemptions == 0


def _wait_for_output(engine: Any) -> None:
    while select.select([engine.arrivals], [], [], 60)[0] and not engine.step().finished:
        pass


def test_too_long_prompt_raises_with_the_limit(engine: Any) -> None:
    engine.configure(engine.sampling, stream=True)
    engine.add(1, [5] * 300)
    with pytest.raises(ValueError, match="status 400 from the server") as raised:
        _wait_for_output(engine)
    assert "256" in str(raised.value)  # max_model_len
    engine.abort()
    assert not engine.busy


def test_server_log_starts_with_the_command(engine: Any) -> None:
    first = Path(engine._server.child.log).read_text().splitlines()[0]
    assert "--no-enable-prefix-caching" in first
    assert "--disable-log-stats" not in first
