"""The engine that computes nothing: the lengths of its answers, its clock, and the process that holds several of it."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from harness_llm.config.benchmark import Sampling
from harness_llm.errors import ConfigError
from harness_llm.protocol.token_store import write_store
from harness_llm.replicas.engines.replay import FILLER, Lengths, ReplayEngine, ReplaySpec, read_recorded

SAMPLING = Sampling(temperature=0.0, min_tokens=1, max_tokens=64, stop_token_ids=(2,))
LLM_CONFIG = {"max_num_seqs": 8}
SPEC = ReplaySpec(
    prefill_tokens_per_s=10_000,
    step_s=0.01,
    step_s_per_sequence=0.001,
    output_tokens=20,
    output_spread=0.5,
    recorded="",
    speed=1.0,
)


def engine(*, stream: bool = True, **changes: Any) -> ReplayEngine:
    made = ReplayEngine(LLM_CONFIG, msgspec.structs.replace(SPEC, **changes))
    made.configure(SAMPLING, stream=stream)
    return made


def answers(running: ReplayEngine) -> tuple[dict[int, int], dict[int, list[int]]]:
    first, finished = {}, {}
    while running.busy:
        step = running.step()
        first |= dict(step.first)
        finished |= {query: list(map(int, ids)) for query, ids in step.finished}
    return first, finished


@pytest.mark.parametrize("spread", [0.0, 0.5, 0.9])
def test_lengths_have_the_mean_that_was_asked(spread: float) -> None:
    lengths = Lengths(290, spread, 1024)
    drawn = [lengths.at(quantile) for quantile in np.random.default_rng(0).random(20_000)]
    assert np.mean(drawn) == pytest.approx(290, rel=0.03)
    assert min(drawn) >= 2
    assert max(drawn) <= 1024


def test_a_prompt_always_has_the_same_answer() -> None:
    one, other = engine(speed=100.0), engine(speed=100.0)
    for query, prompt in enumerate(([1, 2, 3], [1, 2, 4], [9] * 40)):
        one.add(query, prompt)
        other.add(query, prompt)
    first, found = answers(one)
    assert answers(other) == (first, found)
    assert len({len(ids) for ids in found.values()}) > 1
    assert all(ids[-1] == 2 and set(ids[:-1]) == {FILLER} for ids in found.values())
    assert first == {query: ids[0] for query, ids in found.items()}


def test_what_is_issued_again_goes_on() -> None:
    """The whole answer is given, its first token not told again, and it takes a token less."""
    running = engine(stream=True, output_spread=0.0)
    running.add(1, [7, 7, FILLER], "", 1)
    first, found = answers(running)
    assert first == {}
    assert len(found[1]) == 20
    assert running.generated == 19


def test_an_answer_takes_at_least_the_time_of_the_model() -> None:
    """How much longer it takes depends on the machine; the model itself is judged in test_pace."""
    running = engine(output_spread=0.0)
    begin = time.perf_counter()
    running.add(1, [3] * 100)
    answers(running)
    taken = time.perf_counter() - begin
    model = (0.01 + 100 / 10_000) + 19 * (0.01 + 0.001)
    assert taken >= model


def test_a_faster_one_divides_every_duration() -> None:
    assert SPEC.pace(LLM_CONFIG).step_s == 2 * msgspec.structs.replace(SPEC, speed=2.0).pace(LLM_CONFIG).step_s


def test_nothing_is_left_of_queries_that_are_dropped() -> None:
    running = engine()
    running.add(1, [3] * 100)
    running.step()
    running.abort()
    assert not running.busy
    assert running.due is None
    running.add(1, [4])
    assert answers(running)[1].keys() == {1}


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Path]:
    """An accuracy run of two samples, as LoadGen logs one."""
    write_store(tmp_path / "store", [[1, 2, 3], [4, 5]])
    entries = [
        {"seq_id": i, "qsl_idx": i, "data": np.array(ids, dtype="<i4").tobytes().hex(), "token_count": len(ids)}
        for i, ids in enumerate([[10, 11, 2], [20, 2]])
    ]
    (tmp_path / "mlperf_log_accuracy.json").write_text(json.dumps(entries))
    (tmp_path / "loadgen.json").write_text(json.dumps({"store": str(tmp_path / "store")}))
    return tmp_path


def test_recorded_answers_are_repeated(recorded: Path) -> None:
    running = engine(recorded=str(recorded), speed=100.0)
    running.add(1, [4, 5])
    running.add(2, [1, 2, 3])
    assert answers(running)[1] == {1: [20, 2], 2: [10, 11, 2]}
    with pytest.raises(ValueError, match="no answer to this prompt"):
        running.add(3, [6])


def test_a_folder_without_a_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no recorded run"):
        read_recorded(tmp_path)
