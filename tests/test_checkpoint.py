"""Checkpoints by sha256, their records, and folders that appear complete or not at all."""

import hashlib
import json
import os

import pytest

from harness_llm.config.checkpoint import (
    checkpoint_digest,
    checkpoint_files,
    is_complete,
    read_record,
    write_record,
)
from harness_llm.errors import ConfigError
from harness_llm.fileio import replacing


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "config.json").write_text("{}")
    (folder / "README.md").write_text("no engine reads this")
    return folder


def rewrite(file, content):
    """Write `content`, surely at another time."""
    file.write_bytes(content)
    os.utime(file, ns=(1, file.stat().st_mtime_ns + 1_000_000))


def test_digest_covers_the_files_that_an_engine_loads(checkpoint):
    files = checkpoint_files(checkpoint)
    assert list(files) == ["config.json", "model.safetensors"]
    assert files["model.safetensors"] == hashlib.sha256(b"weights").hexdigest()
    assert checkpoint_files(checkpoint.parent / "nothing") == {}


@pytest.mark.parametrize(
    ("files", "complete"),
    [
        (["model.safetensors"], False),
        (["config.json"], False),
        (["config.json", "model.safetensors"], True),
        (["config.json", "model-00001-of-00002.safetensors"], False),
        (["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"], True),
        (["config.json", "model-00001-of-00002.safetensors", "pytorch_model-00002-of-00002.bin"], False),
        (["config.json", "pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"], True),
        (["config.json", "model-00001-of-00002.safetensors", "model.safetensors"], True),
    ],
)
def test_checkpoint_without_an_index_is_complete_with_all_shards(tmp_path, files, complete):
    for name in files:
        (tmp_path / name).touch()
    assert is_complete(tmp_path) == complete


def test_index_lists_the_files_of_a_complete_checkpoint(checkpoint):
    index = checkpoint / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "x.safetensors", "b": "y.safetensors"}}))
    (checkpoint / "x.safetensors").touch()
    assert not is_complete(checkpoint)
    (checkpoint / "y.safetensors").touch()
    assert is_complete(checkpoint)
    index.write_text('{"weight_map": {"a": "x.s')
    assert not is_complete(checkpoint)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "model-2.safetensors"])
def test_every_change_gives_another_digest(checkpoint, name):
    before = checkpoint_digest(checkpoint)
    rewrite(checkpoint / name, b"WEIGHTS")
    assert checkpoint_digest(checkpoint) != before


def test_digest_of_an_unchanged_file_is_cached(checkpoint):
    before = checkpoint_digest(checkpoint)
    weights = checkpoint / "model.safetensors"
    facts = weights.stat()
    weights.write_bytes(b"WEIGHTS")
    os.utime(weights, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert checkpoint_digest(checkpoint) == before


def test_record_is_read_back(checkpoint):
    assert read_record(checkpoint, "manifest.json") is None
    write_record(checkpoint, "manifest.json", steps=7)
    record = read_record(checkpoint, "manifest.json")
    assert record["steps"] == 7
    assert record["files"] == checkpoint_files(checkpoint)


@pytest.mark.parametrize("damage", [lambda f: rewrite(f, b"WEIGHTS"), lambda f: f.unlink()])
def test_damaged_file_is_named(checkpoint, damage):
    write_record(checkpoint, "manifest.json")
    damage(checkpoint / "model.safetensors")
    with pytest.raises(ConfigError) as caught:
        read_record(checkpoint, "manifest.json")
    assert caught.value.where == str(checkpoint / "model.safetensors")
    assert f"rm -r {checkpoint}" in caught.value.hint


def test_folder_is_replaced_atomically(tmp_path):
    output = tmp_path / "out"
    output.mkdir()
    (output / "old").touch()
    with replacing(output) as folder:
        (folder / "new").touch(mode=0o600)
        assert (output / "old").exists()
    assert [f.name for f in output.iterdir()] == ["new"]
    assert (output / "new").stat().st_mode & 0o077 == 0o044
    assert [f.name for f in tmp_path.iterdir()] == ["out"]


def test_failed_replacement_keeps_the_old_folder(tmp_path):
    output = tmp_path / "out"
    with replacing(output) as folder:
        (folder / "old").touch()
    with pytest.raises(FileNotFoundError), replacing(output) as folder:
        (folder / "half").touch() or (folder / "none").unlink()
    assert [f.name for f in output.iterdir()] == ["old"]
    with replacing(output) as folder:
        assert not any(folder.iterdir())
