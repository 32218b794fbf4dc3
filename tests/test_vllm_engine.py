"""vLLM's engine with its core in a process of its own, as on accelerators, started once.

Its KV cache is too small for the sequences that run at once. The tests fail where vLLM changes what vllm_core.py uses.
"""

import gzip
import json
import select
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness_llm.config.assets import Assets
from harness_llm.config.benchmark import Sampling, load_benchmark
from harness_llm.config.engine_config import load_config
from harness_llm.paths import CHECKOUT, Workspace
from harness_llm.protocol.counters import caching_violations
from harness_llm.protocol.token_store import open_store
from harness_llm.replicas.engines.engine import build_engine
from harness_llm.replicas.local import replica_environment

# vLLM imports modules of torch that warn of what they use themselves.
pytestmark = [pytest.mark.engine(seconds=70), pytest.mark.filterwarnings("ignore")]

SAMPLES = 40
# A batch may round otherwise than the reference's; the weights are the same.
LIKE = 0.9
PATIENCE_S = 300
BLOCK, BLOCKS = 32, 17  # one of them is vLLM's own
SETS = (
    "env_config.VLLM_ENABLE_V1_MULTIPROCESSING=1",
    f"llm_config.block_size={BLOCK}",
    f"llm_config.num_gpu_blocks_override={BLOCKS}",
)
Answers = tuple[dict[int, int], dict[int, list[int]]]


@pytest.fixture(scope="module")
def engine(assets: Assets) -> Iterator[Any]:
    with started(assets) as engine:
        yield engine


@pytest.fixture
def own_engine(assets: Assets) -> Iterator[Any]:
    """An engine for a test that ends its core."""
    with started(assets) as engine:
        yield engine


@contextmanager
def started(assets: Assets) -> Iterator[Any]:
    folder = Path(tempfile.mkdtemp())  # pytest's paths are too long for the engine's sockets
    workspace = Workspace(CHECKOUT)
    benchmark = load_benchmark("demo", workspace)
    config = load_config(benchmark, "Server", "cpu", SETS, workspace)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in replica_environment(config, [0], folder=folder, cache=workspace.cache).items():
            patch.setenv(name, value)
        engine: Any = build_engine("vllm", str(assets.original), config.llm_config, traces=str(folder / "traces"))
        engine.traces = folder / "traces"
        engine.sampling = benchmark.sampling
        yield engine
        client = engine._engine.engine_core
        client.shutdown()
        client.ctx.destroy(linger=0)  # vLLM leaves it open


@pytest.fixture
def right(assets: Assets) -> list[list[int]]:
    """The reference's answers."""
    assert assets.reference
    answers: list[list[int]] = json.loads((assets.reference.parent / "answers.json").read_text())
    return answers[:SAMPLES]


Serve = Callable[[Mapping[int, tuple[list[int], str, int]]], Answers]


@pytest.fixture
def serve(engine: Any) -> Serve:
    def serve(queries: Mapping[int, tuple[list[int], str, int]]) -> Answers:
        first: dict[int, int] = {}
        finished: dict[int, list[int]] = {}
        for query, (prompt, kind, reported) in queries.items():
            engine.add(query, prompt, kind, reported)
        while engine.busy:
            assert select.select([engine.arrivals], [], [], PATIENCE_S)[0], "no output arrives"
            step = engine.step()
            assert all(query not in finished for query, _ in step.first)
            first |= dict(step.first)
            finished |= dict(step.finished)
        return first, finished

    return serve


@pytest.fixture
def prompts(assets: Assets) -> list[list[int]]:
    store = open_store(assets.store("performance"))
    return [store.prompt(index).tolist() for index in range(SAMPLES)]


@pytest.mark.parametrize("stop", [(), (7,)])
def test_only_the_stop_tokens_of_the_benchmark_end_an_answer(stop: tuple[int, ...]) -> None:
    from harness_llm.replicas.engines.vllm import sampling_params  # noqa: PLC0415 - loads vLLM

    params = sampling_params(Sampling(temperature=0.0, min_tokens=1, max_tokens=9, stop_token_ids=stop), stream=True)
    params.update_from_generation_config({"eos_token_id": [2, 3]}, eos_token_id=2)  # as vLLM does for each query
    assert params.stop_token_ids == list(stop)
    assert params.eos_token_id is None


@pytest.mark.parametrize("stream", [True, False])
def test_answers_equal_those_of_the_reference(
    engine: Any, serve: Serve, prompts: list[list[int]], right: list[list[int]], *, stream: bool
) -> None:
    engine.configure(engine.sampling, stream=stream)
    first, finished = serve({index: (prompt, "", 0) for index, prompt in enumerate(prompts)})
    assert sum(finished[index] == ids for index, ids in enumerate(right)) > LIKE * SAMPLES
    assert first == ({index: ids[0] for index, ids in finished.items()} if stream else {})
    assert engine.generated == sum(map(len, finished.values()))


def test_capacity_and_preemptions_are_reported(engine: Any, serve: Serve, prompts: list[list[int]]) -> None:
    longer = {"min_tokens": 4 * BLOCK, "max_tokens": 4 * BLOCK, "stop_token_ids": ()}
    engine.configure(engine.sampling.changed(longer), stream=False)
    before = engine.kv_cache()
    serve({index: (prompt, "", 0) for index, prompt in enumerate(prompts)})
    after = engine.kv_cache()
    assert after.preemptions > before.preemptions
    assert (after.blocks, after.block_size) == (BLOCKS, BLOCK)
    assert BLOCK * (BLOCKS - 2) <= after.tokens <= BLOCK * BLOCKS
    assert after.max_concurrency == pytest.approx(after.tokens / 256, rel=0.01)  # max_model_len


def test_activity_of_the_scheduler(engine: Any, prompts: list[list[int]]) -> None:
    engine.configure(engine.sampling, stream=True)
    for index, prompt in enumerate(prompts):
        engine.add(index, prompt)
    seen = []
    while engine.busy:
        assert select.select([engine.arrivals], [], [], PATIENCE_S)[0], "no output arrives"
        engine.step()
        seen.append(engine.activity())
    assert 0 < max(activity.running for activity in seen) <= SAMPLES
    assert 0 < max(activity.kv_cache_use for activity in seen) <= 1
    last = seen[-1]
    assert (last.generated, last.running, last.waiting, last.kv_cache_use) == (engine.generated, 0, 0, 0)
    assert last.preemptions == engine.kv_cache().preemptions


def test_answer_ends_with_a_stop_sequence_of_its_kind(
    engine: Any, serve: Serve, prompts: list[list[int]], right: list[list[int]]
) -> None:
    query = max(range(SAMPLES), key=lambda index: len(right[index]))
    ending = tuple(right[query][2:4])
    engine.configure(engine.sampling.changed({"stop_sequences": {"MBXP": [ending]}}), stream=True)
    _, finished = serve({1: (prompts[query], "MBXP", 0), 2: (prompts[query], "", 0)})
    assert tuple(finished[1][-2:]) == ending
    assert finished[2][: len(finished[1])] == finished[1]
    assert len(finished[1]) < len(finished[2])


@pytest.mark.parametrize("stream", [True, False])
def test_requeued_query_continues_after_its_reported_token(
    engine: Any, serve: Serve, prompts: list[list[int]], right: list[list[int]], *, stream: bool
) -> None:
    engine.configure(engine.sampling, stream=stream)
    alone = serve({1: (prompts[0], "", 0)})[1][1]
    first, finished = serve({2: (prompts[0] + alone[:1], "", 1)})
    assert first == {}
    assert finished[2] == alone


def test_first_token_arrives_before_the_answer_ends(engine: Any, prompts: list[list[int]]) -> None:
    engine.configure(engine.sampling.changed({"min_tokens": 40, "stop_token_ids": ()}), stream=True)
    engine.add(1, prompts[0])
    steps = []
    while engine.busy:
        assert select.select([engine.arrivals], [], [], PATIENCE_S)[0]
        steps.append(engine.step())
    told = next(number for number, step in enumerate(steps) if step.first)
    ended = next(number for number, step in enumerate(steps) if step.finished)
    assert ended - told > 20


def test_too_long_prompt_is_refused(engine: Any) -> None:
    with pytest.raises(ValueError, match="256"):
        engine.add(1, [5] * 300)
    assert not engine.busy


def test_aborted_queries_are_removed(engine: Any, serve: Serve, prompts: list[list[int]]) -> None:
    engine.configure(engine.sampling, stream=True)
    for query, prompt in enumerate(prompts):
        engine.add(query, prompt)
    engine.abort()
    assert not engine.busy
    engine.configure(engine.sampling, stream=True)
    assert list(serve({1: (prompts[0], "", 0)})[1]) == [1]


@pytest.mark.slow
def test_exit_of_the_engine_core_is_raised_with_its_exit_code(own_engine: Any, prompts: list[list[int]]) -> None:
    engine = own_engine
    engine.configure(engine.sampling, stream=True)
    engine.add(1, prompts[0])
    [core] = engine._engine.engine_core.resources.engine_manager.processes
    core.kill()
    while True:
        assert select.select([engine.arrivals], [], [], PATIENCE_S)[0], "the end of the core is not reported"
        try:
            engine.step()
        except RuntimeError as error:
            assert "vLLM's engine core exited" in str(error)  # noqa: PT017 - outputs may come first
            assert "exit code -9" in str(error)  # noqa: PT017
            return


def test_drafts_are_counted_as_the_scheduler_reports_them() -> None:
    """vLLM's CPU build cannot verify drafts (its rejection sampler is a Triton kernel), so that no engine runs here."""
    from vllm.v1.engine import EngineCoreOutputs  # noqa: PLC0415 - loads torch
    from vllm.v1.metrics.stats import SchedulerStats  # noqa: PLC0415 - loads torch
    from vllm.v1.spec_decode.metrics import SpecDecodingStats  # noqa: PLC0415 - loads torch

    from harness_llm.replicas.engines.vllm import add_drafts  # noqa: PLC0415 - loads torch

    stats, drafted = SpecDecodingStats.new(3), {"speculated": 0.0, "drafts": 0.0}
    for accepted in (3, 0, 1):
        stats.observe_draft(num_draft_tokens=3, num_accepted_tokens=accepted)
    for own in (None, SchedulerStats(), SchedulerStats(spec_decoding_stats=stats)):
        drafted = add_drafts(drafted, EngineCoreOutputs(scheduler_stats=own))
    assert drafted == {"speculated": 9, "drafts": 3}
    assert caching_violations(drafted, draft_tokens=3) == []
    assert caching_violations(drafted, draft_tokens=2)
    assert caching_violations(drafted)


def test_profiler_writes_a_trace_of_each_worker(engine: Any, assets: Assets) -> None:
    engine.configure(engine.sampling, stream=True)
    engine.add(1, open_store(assets.store("performance")).prompt(0).tolist())
    engine.profile(on=True)
    while engine.busy:
        select.select([engine.arrivals], [], [], PATIENCE_S)
        engine.step()
    assert not engine.traces.exists()
    engine.profile(on=False)
    [trace] = engine.traces.glob("*.pt.trace.json.gz")
    with gzip.open(trace) as file:
        names = {event.get("name", "") for event in json.load(file)["traceEvents"]}
    assert any(name.startswith("aten::") for name in names)
