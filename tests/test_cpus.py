"""Which cores the replicas and LoadGen's process get."""

import pytest

from harness_llm.fleet.local import split_cpus


@pytest.mark.parametrize(
    ("cpus", "replicas", "own", "loadgen"),
    [
        (2, 1, [[0]], [1]),
        (2, 2, [[0], [1]], [0, 1]),
        (5, 2, [[0, 1], [2, 3]], [4]),
        (4, 8, [[0, 1, 2, 3]] * 8, [0, 1, 2, 3]),
        (1, 1, [[0]], [0]),
    ],
)
def test_replicas_are_apart_while_there_are_cores(
    cpus: int, replicas: int, own: list[list[int]], loadgen: list[int]
) -> None:
    assert split_cpus(range(cpus), replicas, 1) == (own, loadgen)
