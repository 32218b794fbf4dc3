"""Checks of the sources of missing parts, which a publisher on the loopback or no server answers."""

import os
from collections.abc import Iterator
from pathlib import Path

import nltk
import punkt
import pytest
from asked import options
from downloading import DATA, REPO, REVISION, SECRET, make_hub, publishing
from machines import hide_tools
from publisher import LOGIN, Answer, Publisher
from workspaces import make_workspace

from harness_llm.config.benchmark import Download
from harness_llm.config.request import load_request
from harness_llm.evaluate.sentence_splitter import splitter_folder
from harness_llm.hardware import device_lock
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor import download_checks
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.doctor.doctor import combine_results
from harness_llm.pipeline.doctor.download_checks import Source, check_downloads
from harness_llm.pipeline.doctor.examination import examine
from harness_llm.pipeline.doctor.purpose import Part, Purpose
from harness_llm.prepare.downloads import http as wire

pytestmark = pytest.mark.processes
CONTENT = f"/{REPO}/resolve/{REVISION}/config.json"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Publisher]:
    monkeypatch.setattr(wire, "BRIEF_WAITS_S", (0.01,))
    with publishing(monkeypatch) as publisher:
        make_hub(publisher, monkeypatch, tmp_path)
        publisher.repository("o/set", "main", {"a.parquet": DATA}, kind="dataset")
        publisher.contents["/index.xml"] = b"<nltk_data/>"
        monkeypatch.setattr(download_checks, "INDEX", f"{publisher.url}/index.xml")
        yield publisher


def model(*, gated: bool = True) -> Source:
    return Source("model", Download(part="model", folder="x", repo=REPO, revision=REVISION, gated=gated))


def dataset(uri: str) -> Source:
    return Source("dataset", Download(part="dataset", folder="x", uri=uri))


def checked(*sources: Source) -> list[tuple[str, Level, str]]:
    return [(result.name, result.level, result.found) for result in results(*sources)]


def results(*sources: Source) -> list[CheckResult]:
    return list(check_downloads(sources, lambda _: None))


def test_accessible_sources_are_ok_and_nothing_is_downloaded(hub: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    found = checked(model(), dataset(hub.storage("m", {"a": DATA})), Source("sentence splitter"))
    assert found == [("Downloads", Level.OK, "accessible: model, dataset, sentence splitter")]
    assert {asked.headers["Authorization"] for asked in hub.asked if REPO in asked.path} == {f"Bearer {SECRET}"}


def test_without_missing_parts_no_server_is_asked(hub: Publisher) -> None:
    assert results() == []
    assert hub.asked == []


def test_unreachable_servers_are_one_error(hub: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", NOWHERE)
    monkeypatch.setattr(download_checks, "INDEX", "http://127.0.0.1:10/index.xml")
    error, fine = results(model(), dataset(hub.storage("m", {"a": DATA})), Source("sentence splitter"))
    assert (fine.level, fine.found) == (Level.OK, "accessible: dataset")
    assert (error.level, error.exit_code) == (Level.ERROR, 3)
    assert error.where == "127.0.0.1:9, 127.0.0.1:10"
    assert error.expected == "a connection, to download: model, sentence splitter"
    assert "HTTPS_PROXY" in error.hint


def test_proxy_that_does_not_answer_is_an_error(hub: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("HTTP_PROXY", NOWHERE)
    [(_, level, _)] = checked(Source("sentence splitter"))
    assert level is Level.ERROR
    assert hub.asked == []


def test_licence_that_is_not_accepted_is_an_error(hub: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of files is public, their content is not."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    for path in list(hub.contents):
        if "/resolve/" in path:
            hub.answers[path] = Answer(403, {"X-Error-Code": "GatedRepo"})
    [result] = results(model())
    assert (result.level, result.exit_code) == (Level.ERROR, 3)
    assert result.found == f"licence of {REPO} not accepted by the owner of the Hugging Face token"


def test_access_to_a_gated_repository_is_not_checked_without_a_token(hub: Publisher) -> None:
    found = checked(model(), Source("sentence splitter"))
    assert found == [
        ("Hugging Face token", Level.ERROR, "missing, and the repository is gated"),
        ("Downloads", Level.NOT_CHECKED, "access to the model, which needs a token"),
        ("Downloads", Level.OK, "accessible: sentence splitter"),
    ]
    assert checked(model(gated=False)) == [("Downloads", Level.OK, "accessible: model")]


def test_invalid_token_is_one_error(hub: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_ü")
    assert checked(model()) == [("Hugging Face token", Level.ERROR, "invalid Hugging Face token")]
    monkeypatch.setenv("HF_TOKEN", "")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", os.sep)
    assert checked(model()) == [("Hugging Face token", Level.ERROR, "unreadable file of the Hugging Face token")]


def test_refused_token_is_one_error_for_all_repositories(hub: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRET)
    other = Download(part="livecodebench", folder="y", repo="o/set", repo_type="dataset", revision="main")
    for path in (f"/api/models/{REPO}/revision/{REVISION}", "/api/datasets/o/set/revision/main"):
        hub.answers[path] = Answer(401)
    assert checked(model(), Source("livecodebench", other)) == [
        ("Downloads", Level.ERROR, "invalid Hugging Face token"),
    ]


def test_missing_login_of_members_is_an_error(hub: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_tools(monkeypatch)
    uri = hub.storage("m", {"a": DATA})
    hub.answers["/metadata/m.uri"] = LOGIN
    [(_, level, found)] = checked(dataset(uri))
    assert (level, found) == (Level.ERROR, "missing login for a download of MLCommons members")


def test_busy_server_is_listed_as_not_checked(hub: Publisher) -> None:
    hub.answers["/index.xml"] = Answer(503)
    [(_, level, found)] = checked(Source("sentence splitter"))
    assert level is Level.NOT_CHECKED
    assert "server is too busy: " in found


def examined(root: Path, *, part: Part = Part.ALL, **words: object) -> dict[str, CheckResult]:
    values = {"gpu": "cpu", "division": "open", "system_name": "box", "company": "Acme"} | words
    request = load_request(options(**values), Workspace(root))
    return {result.name: result for result in combine_results([examine(request, Purpose.SUBMIT, part=part)])}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A checkout; nltk searches no folder outside of it."""
    hide_tools(monkeypatch)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    monkeypatch.setattr(device_lock, "make_locks", lambda: tmp_path)
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setenv("NLTK_DATA", "")
    punkt.forget()
    return make_workspace(tmp_path)


@pytest.mark.parametrize("part", [Part.ALL, Part.HOST])
def test_missing_sentence_splitter_is_downloaded_by_a_stand_in_too(
    hub: Publisher, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, part: Part
) -> None:
    words = {"model": "llama3.1-8b", "stand_in": True, "part": part}
    assert examined(workspace.root, **words)["Downloads"].found == "accessible: sentence splitter"
    monkeypatch.setattr(download_checks, "INDEX", f"{NOWHERE}/index.xml")
    assert examined(workspace.root, **words)["Downloads"].level is Level.ERROR
    punkt.train(splitter_folder(workspace), ["This is one. This is two. Mr. Smith is three."])
    punkt.forget()
    assert "Downloads" not in examined(workspace.root, **words)


def test_containers_do_not_see_the_sentence_splitter_of_the_home_folder(
    hub: Publisher, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "home")])
    punkt.train(tmp_path / "home", ["This is one. This is two. Mr. Smith is three."])
    words = {"model": "llama3.1-8b", "stand_in": True}
    assert "Downloads" not in examined(workspace.root, **words)
    assert "Downloads" in examined(workspace.root, **words, part=Part.HOST)
    assert "Downloads" not in examined(workspace.root, **words, part=Part.CONTAINER)


def test_benchmark_without_sentence_splitting_needs_no_network(hub: Publisher, workspace: Workspace) -> None:
    assert "Downloads" not in examined(workspace.root, model="demo")
    assert hub.asked == []
