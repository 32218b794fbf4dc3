import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness_llm.datasets.store import open_store, write_store
from harness_llm.errors import ConfigError, EnvironmentMissing

PROMPTS = [[1, 2, 3], [4], [], [500, 2**31 - 1]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", PROMPTS, ["a", "b", "c", "d"])
    return tmp_path / "store"


def test_what_is_written_is_read_back(store: Path) -> None:
    found = open_store(store)
    assert [found.prompt(i).tolist() for i in range(len(found))] == PROMPTS
    assert found.lengths().tolist() == [3, 1, 0, 2]
    assert found.targets() == ["a", "b", "c", "d"]
    assert found.tokens.dtype == np.int32


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=5), min_size=1, max_size=8))
def test_any_prompts_are_read_back(tmp_path_factory: pytest.TempPathFactory, prompts: list[list[int]]) -> None:
    if not any(prompts):
        prompts = [*prompts, [1]]
    path = tmp_path_factory.mktemp("store")
    write_store(path, prompts)
    found = open_store(path)
    assert [found.prompt(i).tolist() for i in range(len(found))] == prompts


def test_the_digest_names_prompts_bounds_and_targets(tmp_path: Path) -> None:
    variants = [
        ([[1, 2], [3]], ["a", "b"]),
        ([[1, 2], [4]], ["a", "b"]),
        ([[1], [2, 3]], ["a", "b"]),
        ([[1, 2], [3]], ["a", "c"]),
        ([[1, 2], [3]], None),
    ]
    digests = []
    for number, (prompts, targets) in enumerate([*variants, variants[0]]):
        write_store(tmp_path / str(number), prompts, targets)
        digests.append(open_store(tmp_path / str(number)).digest)
    assert len(set(digests)) == len(variants)
    assert digests[0] == digests[-1]


def test_without_a_manifest_there_is_no_store_yet(store: Path) -> None:
    (store / "manifest.json").unlink()
    with pytest.raises(EnvironmentMissing, match="a data set is not there") as caught:
        open_store(store, hint="make it")
    assert (caught.value.where, caught.value.hint) == (str(store), "make it")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


@pytest.mark.parametrize(
    "damage",
    [
        lambda store: np.save(store / "tokens.npy", np.arange(5, dtype=np.int32)),
        lambda store: np.save(store / "offsets.npy", np.arange(3)),
        lambda store: (store / "manifest.json").write_text(json.dumps({"samples": 3, "sha256": ""})),
        lambda store: (store / "manifest.json").write_text("{"),
        lambda store: (store / "manifest.json").write_text("{}"),
        lambda store: _cut(store / "tokens.npy"),
        lambda store: _cut(store / "offsets.npy"),
        lambda store: (store / "tokens.npy").write_bytes(b""),
        lambda store: (store / "offsets.npy").unlink(),
    ],
    ids=[
        "fewer tokens",
        "fewer offsets",
        "other count",
        "half a manifest",
        "empty manifest",
        "tokens cut",
        "offsets cut",
        "tokens empty",
        "no offsets",
    ],
)
def test_a_damaged_store_is_refused_and_the_way_out_named(store: Path, damage: Callable[[Path], object]) -> None:
    damage(store)
    with pytest.raises(ConfigError, match="a data set is damaged") as caught:
        open_store(store)
    assert caught.value.where == str(store)
    assert caught.value.hint == f"rm -r {store}"
