import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from downloading import DATA, MODEL, SECRET, bring, failure, left, publishing, stored
from publisher import Publisher

from harness_llm.errors import ConfigError, EnvironmentMissing, RunFailed

pytestmark = pytest.mark.processes


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    with publishing(monkeypatch) as publisher:
        yield publisher


def test_files_of_the_list_are_downloaded_with_progress(server: Publisher, tmp_path: Path) -> None:
    uri = server.storage("orca", {"a b.pkl": DATA, "deep/model.bin": MODEL, "empty": b""}, base="data/orca")
    said = bring(stored(uri), tmp_path / "new")
    assert left(tmp_path / "new") == ["a b.pkl", "deep/model.bin", "empty"]
    assert (tmp_path / "new/a b.pkl").read_bytes() == DATA
    assert (tmp_path / "new/deep/model.bin").read_bytes() == MODEL
    assert said[-1] == ("dataset: 340.0 kB of 340.0 kB", 1.0)


def test_pattern_without_a_match_lists_the_files(server: Publisher, tmp_path: Path) -> None:
    error = failure(stored(server.storage("orca", {"a.pkl": DATA}), "*.parquet"), tmp_path)
    assert isinstance(error, ConfigError)
    assert error.what == "no published file matches"
    assert (error.expected, error.found) == ("*.parquet", "a.pkl")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"/metadata/m.uri": None}, "file not found in MLCommons' storage"),
        ({"/metadata/m.md5": None}, "file not found in MLCommons' storage"),
        ({"/folder/a": None}, "file not found in MLCommons' storage"),
        ({"/metadata/m.md5": b"<html>hotel wifi</html>"}, "invalid line in checksum list"),
        ({"/metadata/m.md5": b"\n"}, "empty checksum list"),
        (
            {"/metadata/m.uri": b"https://elsewhere.example/folder"},
            "metadata file refers to another host",
        ),
    ],
)
def test_wrong_answers_of_the_storage_are_reported(
    server: Publisher, tmp_path: Path, change: dict[str, bytes | None], what: str
) -> None:
    uri = server.storage("m", {"a": DATA})
    for path, content in change.items():
        del server.contents[path]
        if content is not None:
            server.contents[path] = content
    error = failure(stored(uri), tmp_path)
    assert error.what == what
    assert error.exit_code == (ConfigError if "not found" in what else RunFailed).exit_code
    assert error.where == server.url + next(iter(change))
    assert left(tmp_path) == []


def test_member_storage_without_login_is_refused_with_the_command(
    server: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no cloudflared
    monkeypatch.delenv("HARNESS_LLM_IMAGE", raising=False)
    server.login = ("cf-access-token", SECRET)
    uri = server.storage("m", {"a": DATA})
    error = failure(stored(uri), tmp_path)
    assert isinstance(error, EnvironmentMissing)
    assert error.what == "missing login for a download of MLCommons members"
    assert f"cloudflared access login {uri}" in error.hint
    assert "CF_ACCESS_CLIENT_ID" in error.hint
    monkeypatch.setenv("HARNESS_LLM_IMAGE", "model_and_dataset")
    assert f"then on the host, run cloudflared access login {uri}, or set" in failure(stored(uri), tmp_path).hint


@pytest.mark.parametrize("way", ["service account", "cloudflared"])
def test_member_storage_accepts_the_login(
    server: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    uri = server.storage("m", {"a": DATA})
    if way == "service account":
        monkeypatch.setenv("CF_ACCESS_CLIENT_ID", "id.access")
        monkeypatch.setenv("CF_ACCESS_CLIENT_SECRET", SECRET)
        server.login = ("CF-Access-Client-Secret", SECRET)
    else:
        program = tmp_path / "cloudflared"
        program.write_text(f'#!/bin/sh\n[ "$*" = "access token --app={uri}" ] && echo {SECRET}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        server.login = ("cf-access-token", SECRET)
    bring(stored(uri), tmp_path / "in")
    assert left(tmp_path / "in") == ["a"]
    server.login = ("cf-access-token", "another")
    (tmp_path / "in/a").unlink()
    error = failure(stored(uri), tmp_path / "in")
    assert isinstance(error, EnvironmentMissing)
    assert SECRET not in str(error)
