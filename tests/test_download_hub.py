from collections.abc import Iterator
from pathlib import Path

import pytest
from downloading import DATA, MODEL, REPO, REVISION, SECRET, bring, failure, hosted, left, make_hub, publishing
from publisher import Answer, Publisher

from harness_llm.config.benchmark import Download
from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError, RunFailed


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Publisher]:
    with publishing(monkeypatch) as publisher:
        yield make_hub(publisher, monkeypatch, tmp_path)


def test_the_hub_gives_what_the_patterns_say_of_the_pinned_revision(hub: Publisher, tmp_path: Path) -> None:
    bring(hosted("*.json", "model-*.safetensors"), tmp_path)
    assert left(tmp_path) == ["config.json", "model-1.safetensors"]
    assert (tmp_path / "model-1.safetensors").read_bytes() == MODEL
    hub.repository("o/set", "abc", {"3.0.0/validation.parquet": DATA}, kind="dataset")
    data = Download(part="dataset", folder="x", repo="o/set", repo_type="dataset", revision="abc")
    bring(data, tmp_path / "set")
    assert left(tmp_path / "set") == ["3.0.0/validation.parquet"]


def refusal(hub: Publisher, answer: Answer, target: Path) -> HarnessError:
    """What comes of a repository that answers so; the list may be public where the content is not."""
    hub.answers[f"/{REPO}/resolve/{REVISION}/model-1.safetensors"] = answer
    late = failure(hosted("model-*"), target)
    hub.answers[f"/api/models/{REPO}/revision/{REVISION}"] = answer
    early = failure(hosted("model-*"), target)
    assert (early.what, early.hint, early.exit_code) == (late.what, late.hint, late.exit_code)
    assert left(target) == []
    assert SECRET not in str(late)
    return late


@pytest.mark.parametrize("answer", [Answer(401, {"X-Error-Code": "GatedRepo"}), Answer(401)])
def test_no_token(hub: Publisher, tmp_path: Path, answer: Answer) -> None:
    error = refusal(hub, answer, tmp_path)
    assert isinstance(error, EnvironmentMissing)
    assert error.what == f"missing Hugging Face token for {REPO}"
    assert f"accept the licence at {hub.url}/{REPO}" in error.hint
    assert "export HUGGINGFACE_ACCESS_TOKEN" in error.hint


@pytest.mark.parametrize("variable", ["HUGGINGFACE_ACCESS_TOKEN", "HF_TOKEN"])
def test_a_wrong_token(hub: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, SECRET)
    error = refusal(hub, Answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"}), tmp_path)
    assert isinstance(error, ConfigError)
    assert error.what == "invalid Hugging Face token"
    assert variable in error.where
    assert error.found == "HTTP 401 Unauthorized: Invalid credentials in Authorization header"


def test_a_token_that_no_header_can_hold_is_wrong_and_not_shown(
    hub: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{SECRET}\nX: y")
    error = failure(hosted(), tmp_path)
    assert error.what == "invalid Hugging Face token"
    assert SECRET not in str(error)
    assert hub.asked == []


def test_a_licence_that_is_not_accepted(hub: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    gated = Answer(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "not in the authorized list"})
    error = refusal(hub, gated, tmp_path)
    assert isinstance(error, EnvironmentMissing)
    assert error.what == f"licence of {REPO} not accepted by the owner of the Hugging Face token"
    assert error.found == "HTTP 403 Forbidden: not in the authorized list"
    assert error.hint.startswith(f"log in at {hub.url}/{REPO}, accept the licence")


def test_a_token_that_may_not_read_gated_repositories(
    hub: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    error = refusal(hub, Answer(403, {"X-Error-Message": "enable access to public gated repositories"}), tmp_path)
    assert isinstance(error, ConfigError)
    assert error.what == f"no read access to {REPO} with this Hugging Face token"


@pytest.mark.parametrize("code", ["RepoNotFound", "RevisionNotFound"])
def test_a_repository_or_revision_that_is_not_there(hub: Publisher, tmp_path: Path, code: str) -> None:
    error = refusal(hub, Answer(401 if code == "RepoNotFound" else 404, {"X-Error-Code": code}), tmp_path)
    assert isinstance(error, ConfigError)
    assert error.what == f"model {REPO} at {REVISION} not found on Hugging Face"


def test_the_token_goes_to_the_hub_and_not_where_the_hub_keeps_content(
    hub: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUGGINGFACE_ACCESS_TOKEN", SECRET)
    path = f"/{REPO}/resolve/{REVISION}/model-1.safetensors"
    with Publisher() as elsewhere:
        elsewhere.contents["/blob"] = MODEL
        hub.answers[path] = Answer(302, {"Location": f"{elsewhere.url}/blob"})
        bring(hosted("model-*"), tmp_path)
        assert {asked.headers.get("Authorization") for asked in hub.asked} == {f"Bearer {SECRET}"}
        assert ["Authorization" in asked.headers for asked in elsewhere.asked] == [False]


def test_the_hub_may_answer_with_something_else(hub: Publisher, tmp_path: Path) -> None:
    hub.contents[f"/api/models/{REPO}/revision/{REVISION}"] = b"<html>hotel wifi</html>"
    error = failure(hosted(), tmp_path)
    assert isinstance(error, RunFailed)
    assert error.what == "invalid file list of the hub"


@pytest.mark.parametrize("content", [MODEL + b"more", MODEL[:-7]])
def test_a_size_that_the_hub_did_not_announce_ends_it_too(hub: Publisher, tmp_path: Path, content: bytes) -> None:
    hub.contents[f"/{REPO}/resolve/{REVISION}/model-1.safetensors"] = content
    error = failure(hosted("model-*"), tmp_path)
    assert isinstance(error, RunFailed)
    assert error.what == "wrong size of model-1.safetensors; removed the file"
    assert (error.expected, error.found) == ("300000 bytes", f"{len(content)} bytes")
    assert left(tmp_path) == []
