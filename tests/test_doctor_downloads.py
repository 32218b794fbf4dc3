"""Checks of the sources of missing parts, which a publisher on the loopback or no server answers."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nltk
import punkt
import pytest
from asked import options
from command_line import CommandLine
from downloading import DATA, REPO, REVISION, SECRET, make_hub, publishing
from machines import hide_tools
from publisher import LOGIN, Answer, Publisher
from workspaces import make_workspace

from harness_llm.config.benchmark import Download
from harness_llm.config.request import Request, load_request
from harness_llm.evaluate.sentence_splitter import splitter_folder
from harness_llm.hardware import device_lock
from harness_llm.paths import Workspace
from harness_llm.pipeline.doctor import download_checks
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.doctor.download_checks import Source, check_downloads, missing_sources
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


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A checkout; nltk searches no folder outside of it."""
    hide_tools(monkeypatch)
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    for name in ("LAB_MODEL", "LAB_DATASET", "MLPERF_SCRATCH_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device_lock, "make_locks", lambda: tmp_path)
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setenv("NLTK_DATA", "")
    punkt.forget()
    return make_workspace(tmp_path)


def request(workspace: Workspace, model: str, **words: object) -> Request:
    values = {"gpu": "h200", "division": "open", "system_name": "box", "company": "Acme"} | words
    return load_request(options(model=model, **values), workspace)


def missing(workspace: Workspace, model: str, *, by_containers: bool = False, **words: object) -> list[str]:
    sources = missing_sources(request(workspace, model, **words), by_containers=by_containers)
    return [source.part for source in sources]


@pytest.mark.parametrize("by_containers", [False, True])
def test_sentence_splitter_of_the_scoring_is_a_missing_part(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, *, by_containers: bool
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(splitter_folder(workspace))])  # nltk writes to no other folder
    parts = ["dataset", "calibration", "model"]
    assert missing(workspace, "llama3.1-8b", by_containers=by_containers) == [*parts, "sentence splitter"]
    assert missing(workspace, "llama2-70b", by_containers=by_containers) == parts
    punkt.train(splitter_folder(workspace), ["This is one. This is two. Mr. Smith is three."])
    punkt.forget()
    assert missing(workspace, "llama3.1-8b", by_containers=by_containers) == parts


def test_containers_do_not_see_the_sentence_splitter_of_the_home_folder(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "home")])
    punkt.train(tmp_path / "home", ["This is one. This is two. Mr. Smith is three."])
    assert "sentence splitter" not in missing(workspace, "llama3.1-8b")
    assert "sentence splitter" in missing(workspace, "llama3.1-8b", by_containers=True)


@pytest.mark.parametrize("words", [{"model": "demo"}, {"model": "llama3.1-8b", "stand_in": True}])
def test_demo_and_stand_ins_download_nothing(workspace: Workspace, words: dict[str, Any]) -> None:
    assert missing(workspace, **words, gpu="cpu") == []


@pytest.mark.parametrize(
    ("part", "purpose", "expected"),
    [
        (Part.ALL, Purpose.SUBMIT, True),
        (Part.ALL, Purpose.PREPARE, True),
        (Part.HOST, Purpose.SUBMIT, True),
        (Part.CONTAINER, Purpose.SUBMIT, False),  # another container downloads
    ],
)
def test_part_that_downloads_checks_the_sources(
    hub: Publisher, workspace: Workspace, part: Part, purpose: Purpose, *, expected: bool
) -> None:
    examination = examine(request(workspace, "llama3.1-8b"), purpose, part=part)
    assert bool(examination.needs.sources) == expected
    assert hub.asked == []


@pytest.mark.parametrize("command", ["doctor", "submit", "prepare"])
def test_missing_network_is_an_error_of_every_command(
    hub: Publisher,
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", NOWHERE)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", NOWHERE)
    monkeypatch.setattr(download_checks, "INDEX", f"{NOWHERE}/index.xml")
    done = CommandLine(monkeypatch, capsys)(command, "--model", "llama3.1-8b", "--gpu", "h200", "--division", "open")
    text = done.out + done.err
    assert done.code == 3
    assert text.count("server unreachable") == 1
    assert "where: inference.mlcommons-storage.org, 127.0.0.1:9\n" in text
