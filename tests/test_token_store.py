import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.store import measure, write_openorca_sized
from harness_llm.errors import ConfigError, EnvironmentMissing
from harness_llm.protocol.token_store import open_store, origin, write_store

PROMPTS = [[1, 2, 3], [4], [], [500, 2**31 - 1]]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path / "store", PROMPTS, ["a", "", "ä\n日", "d"], ["y", "x", "y", "y"], {"file": 1})
    return tmp_path / "store"


def test_written_samples_are_read_back(store: Path) -> None:
    found = open_store(store)
    assert [found.prompt(i).tolist() for i in range(len(found))] == PROMPTS
    assert found.lengths().tolist() == [3, 1, 0, 2]
    assert found.targets() == ["a", "", "ä\n日", "d"]
    assert found.kinds() == ["y", "x", "y", "y"]
    assert found.tokens.dtype == np.int32


@given(
    st.lists(st.tuples(st.lists(st.integers(0, 2**31 - 1), max_size=5), st.text(), st.text()), min_size=1, max_size=8)
)
def test_any_samples_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, samples: list[tuple[list[int], str, str]]
) -> None:
    path = tmp_path_factory.mktemp("any") / "store"
    prompts, targets, kinds = map(list, zip(*samples, strict=True))
    write_store(path, prompts, targets, kinds)
    found = open_store(path)
    assert [found.prompt(i).tolist() for i in range(len(found))] == prompts
    assert found.targets() == targets
    assert found.kinds() == kinds


def test_missing_targets_and_kinds_are_empty(tmp_path: Path) -> None:
    write_store(tmp_path / "store", PROMPTS)
    found = open_store(tmp_path / "store")
    assert found.targets() == found.kinds() == [""] * len(PROMPTS)


def test_digest_covers_prompts_bounds_targets_and_kinds(tmp_path: Path) -> None:
    variants: list[tuple[Any, ...]] = [
        ([[1, 2], [3]], ["a", "b"]),
        ([[1, 2], [4]], ["a", "b"]),
        ([[1], [2, 3]], ["a", "b"]),
        ([[1, 2], [3]], ["a", "c"]),
        ([[1, 2], [3]], ["ab", ""]),
        ([[1, 2], [3]], ["a", "b"], ["x", "y"]),
        ([[1, 2], [3]], ["a", "b"], ["y", "x"]),
        ([[1, 2], [3]], ["a", "b"], ["x", "z"]),
        ([[1, 2], [3]], None),
    ]
    digests = []
    for number, samples in enumerate([*variants, variants[0]]):
        write_store(tmp_path / str(number), *samples, made_from={"number": number})
        digests.append(open_store(tmp_path / str(number)).digest)
    assert len(set(digests)) == len(variants)
    assert digests[0] == digests[-1]


def test_store_names_its_source(store: Path, tmp_path: Path) -> None:
    assert origin(store) == {"file": 1}
    assert origin(tmp_path / "none") == {}
    (store / "tokens.npy").unlink()
    assert origin(store) == {}


def test_store_replaces_an_existing_one(store: Path) -> None:
    open_before = open_store(store)
    write_store(store, [[9]])
    assert open_store(store).prompt(0).tolist() == [9]
    assert open_before.prompt(0).tolist() == PROMPTS[0]
    assert sorted(f.name for f in store.iterdir()) == ["manifest.json", "tokens.npy", "tokens_offsets.npy"]
    assert [f.name for f in store.parent.iterdir()] == [store.name]


@contextmanager
def _small_disk(size: int) -> Iterator[None]:
    """No file can be longer than `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_full_disk_is_reported_and_keeps_the_old_store(store: Path) -> None:
    with _small_disk(4096), pytest.raises(EnvironmentMissing, match="data set not written") as caught:
        write_store(store, [[1] * 10_000])
    assert caught.value.where == str(store)
    assert open_store(store).prompt(0).tolist() == PROMPTS[0]
    assert [file.name for file in store.parent.iterdir()] == [store.name]


def test_store_without_a_manifest_is_missing(store: Path) -> None:
    (store / "manifest.json").unlink()
    with pytest.raises(EnvironmentMissing, match="missing data set") as caught:
        open_store(store, hint="make it")
    assert (caught.value.where, caught.value.hint) == (str(store), "make it")


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-4])


@pytest.mark.parametrize(
    "damage",
    [
        lambda store: np.save(store / "tokens.npy", np.arange(5, dtype=np.int32)),
        lambda store: np.save(store / "tokens_offsets.npy", np.arange(3)),
        lambda store: (store / "manifest.json").write_text(json.dumps({"samples": 3, "sha256": ""})),
        lambda store: (store / "manifest.json").write_text("{"),
        lambda store: (store / "manifest.json").write_text("{}"),
        lambda store: _cut(store / "tokens.npy"),
        lambda store: _cut(store / "tokens_offsets.npy"),
        lambda store: (store / "tokens.npy").write_bytes(b""),
        lambda store: (store / "tokens_offsets.npy").unlink(),
        lambda store: np.save(store / "tokens_offsets.npy", np.arange(5) + 2),
        lambda store: np.save(store / "tokens_offsets.npy", np.array([0, 5, 3, 3, 6])),
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
        "shifted offsets",
        "falling offsets",
    ],
)
def test_damaged_store_is_refused_with_a_hint(store: Path, damage: Callable[[Path], object]) -> None:
    damage(store)
    with pytest.raises(ConfigError, match="damaged data set") as caught:
        open_store(store)
    assert caught.value.where == str(store)
    assert caught.value.hint == f"rm -r {store}"


@pytest.mark.parametrize("name", ["targets", "targets_offsets", "kinds"])
@pytest.mark.parametrize("damage", [lambda file: file.unlink(), _cut, lambda file: np.save(file, np.arange(3))])
def test_damaged_targets_and_kinds_are_refused(store: Path, name: str, damage: Callable[[Path], object]) -> None:
    damage(store / f"{name}.npy")
    found = open_store(store)
    with pytest.raises(ConfigError, match="damaged data set"):
        found.kinds() if name == "kinds" else found.targets()


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="this kernel does not report shared memory")
def test_openorca_store_is_memory_mapped_and_shared(tmp_path: Path) -> None:
    write_openorca_sized(tmp_path / "store")
    size = (tmp_path / "store" / "tokens.npy").stat().st_size / 2**20
    readings = measure(tmp_path / "store", processes=3)
    assert max(reading.open_s for reading in readings) < 1
    assert sum(reading.pss_mib for reading in readings) == pytest.approx(size, rel=0.2)
