import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from downloading import DATA, MODEL, REPO, REVISION, bring, failure, hosted, left, make_hub, publishing, stored
from publisher import Answer, Asked, Publisher, md5

from harness_llm.config.benchmark import Download
from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.prepare.downloads import http as wire
from harness_llm.prepare.downloads.fetch import fetch

pytestmark = pytest.mark.processes

FETCH = """
import sys
from pathlib import Path
from harness_llm.config.benchmark import Download
from harness_llm.prepare.downloads.fetch import fetch
from harness_llm.errors import HarnessError
try:
    fetch(Download.model_validate_json(sys.argv[1]), Path(sys.argv[2]), lambda *_: None)
except HarnessError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publisher]:
    with publishing(monkeypatch) as publisher:
        yield publisher


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Publisher]:
    with publishing(monkeypatch) as publisher:
        yield make_hub(publisher, monkeypatch, tmp_path)


@pytest.mark.parametrize("publisher", ["storage", "hub"])
def test_complete_download_makes_no_request(hub: Publisher, tmp_path: Path, publisher: str) -> None:
    wanted = hosted() if publisher == "hub" else stored(hub.storage("m", {"model-1.safetensors": MODEL}))
    bring(wanted, tmp_path)
    hub.asked.clear()
    assert bring(wanted, tmp_path) == [(f"{wanted.part}: complete", 1.0)]
    assert hub.asked == []
    (tmp_path / "model-1.safetensors").touch()
    bring(wanted, tmp_path)
    assert hub.asked
    assert hub.content_requests() == []


@pytest.mark.parametrize("damage", ["changed", "shorter", "gone"])
def test_damaged_file_is_downloaded_again(server: Publisher, tmp_path: Path, damage: str) -> None:
    wanted, path = stored(server.storage("m", {"a": DATA, "b": MODEL})), tmp_path / "a"
    bring(wanted, tmp_path)
    server.asked.clear()
    content = {"changed": DATA[:-1] + b"?", "shorter": DATA[:-1], "gone": None}[damage]
    path.unlink() if content is None else path.write_bytes(content)
    bring(wanted, tmp_path)
    assert path.read_bytes() == DATA
    assert [asked.path for asked in server.content_requests()] == ["/folder/a"]


def test_existing_files_are_verified_and_not_downloaded(server: Publisher, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    (tmp_path / ".downloads.json").write_text("{damaged")
    bring(stored(server.storage("m", {"a": DATA})), tmp_path)
    assert server.content_requests() == []


def test_two_downloads_into_one_folder_wait_for_each_other(server: Publisher, tmp_path: Path) -> None:
    uri = server.storage("m", {"a": DATA, "b": MODEL})
    first, second = stored(uri, "a"), stored(uri, "b")
    bring(first, tmp_path)
    bring(second, tmp_path)
    assert left(tmp_path) == ["a", "b"]
    server.asked.clear()
    bring(first, tmp_path)
    bring(second, tmp_path)
    assert server.asked == []


@pytest.mark.parametrize("publisher", ["storage", "hub"])
def test_dropped_connection_is_resumed(hub: Publisher, tmp_path: Path, publisher: str) -> None:
    wanted, path = (
        (hosted("model-*"), f"/{REPO}/resolve/{REVISION}/model-1.safetensors")
        if publisher == "hub"
        else (stored(hub.storage("m", {"model-1.safetensors": MODEL})), "/folder/model-1.safetensors")
    )
    hub.cuts[path] = [100_000, 100_000, 0, 50_000]  # progress earns new patience
    bring(wanted, tmp_path)
    assert (tmp_path / "model-1.safetensors").read_bytes() == MODEL
    starts = [asked.headers.get("Range") for asked in hub.content_requests()]
    assert starts == [None, "bytes=100000-", *["bytes=200000-"] * 2, "bytes=250000-"]
    assert left(tmp_path) == ["model-1.safetensors"]


def test_partial_file_is_kept_for_the_next_call(server: Publisher, tmp_path: Path) -> None:
    uri = server.storage("m", {"a": DATA, "b": MODEL})
    wanted = stored(uri)
    bring(stored(uri, "a"), tmp_path)
    server.cuts["/folder/b"] = [123_456, 0, 0]
    error = failure(wanted, tmp_path)
    assert isinstance(error, RunFailed)
    assert "lost repeatedly" in error.what
    assert error.hint == "run the same command again: it resumes the download"
    part = f"b.{md5(MODEL)[:8]}.part"
    assert left(tmp_path) == ["a", part]
    assert (tmp_path / part).read_bytes() == MODEL[:123_456]
    server.asked.clear()
    said = bring(wanted, tmp_path)
    assert [(asked.path, asked.headers.get("Range")) for asked in server.content_requests()] == [
        ("/folder/b", "bytes=123456-")
    ]
    assert left(tmp_path) == ["a", "b"]
    assert said[-1][1] == 1.0
    assert not [text for text, _ in said if "verifying" in text]  # what was verified is not read again


def test_files_are_transferred_at_the_same_time(server: Publisher, tmp_path: Path) -> None:
    uri = server.storage("m", {"a": DATA, "b": MODEL, "c": DATA})
    together = threading.Barrier(3, timeout=60)
    server.watch = lambda asked: asked.path.startswith("/folder") and asked.method == "GET" and together.wait()
    bring(stored(uri), tmp_path)
    assert left(tmp_path) == ["a", "b", "c"]


def test_failed_file_stops_the_other_transfers(server: Publisher, tmp_path: Path) -> None:
    wanted = stored(server.storage("m", {"bad": DATA, "slow": MODEL}))
    slow_begun, bad_failed = threading.Event(), threading.Event()

    def delay(asked: Asked) -> None:
        if asked.method == "GET" and asked.path == "/folder/slow":
            slow_begun.set()
            bad_failed.wait(60)
        elif asked.method == "GET" and asked.path == "/folder/bad":
            slow_begun.wait(60)

    server.watch = delay
    server.contents["/folder/bad"] = DATA[::-1]
    assert failure(wanted, tmp_path).what == "wrong checksum of bad; removed the file"
    bad_failed.set()
    for thread in threading.enumerate():
        if thread.name.startswith("transfer"):
            thread.join(60)
            assert not thread.is_alive()
    assert [asked.path for asked in server.content_requests()].count("/folder/slow") == 1
    assert not (tmp_path / "slow").exists()


def test_server_without_ranges_restarts_the_file(server: Publisher, tmp_path: Path) -> None:
    server.ranges = False
    server.cuts["/folder/b"] = [100_000]
    assert bring(stored(server.storage("m", {"b": MODEL})), tmp_path)[-1] == ("dataset: 300.0 kB of 300.0 kB", 1.0)
    assert (tmp_path / "b").read_bytes() == MODEL


@pytest.mark.parametrize("rubbish", [b"?" * 1000, b"?" * 400_000])
def test_partial_file_with_other_content_is_discarded(server: Publisher, tmp_path: Path, rubbish: bytes) -> None:
    wanted = stored(server.storage("m", {"b": MODEL}))
    part = tmp_path / f"b.{md5(MODEL)[:8]}.part"
    part.write_bytes(rubbish)
    if len(rubbish) < len(MODEL):
        assert "wrong checksum of b" in failure(wanted, tmp_path).what
        assert left(tmp_path) == []
    bring(wanted, tmp_path)
    assert left(tmp_path) == ["b"]


def test_partial_file_of_an_earlier_version_is_discarded(server: Publisher, tmp_path: Path) -> None:
    server.cuts["/folder/b"] = [100_000, 0, 0]
    failure(stored(server.storage("m", {"b": DATA * 5})), tmp_path)
    server.asked.clear()
    bring(stored(server.storage("m", {"b": MODEL})), tmp_path)
    assert "Range" not in server.content_requests()[0].headers
    assert left(tmp_path) == ["b"]


@pytest.mark.parametrize(
    ("repo_file", "kind"), [("config.json", "git"), ("model-1.safetensors", "sha256"), (None, "md5")]
)
def test_wrong_checksum_ends_the_download_and_leaves_no_file(
    hub: Publisher, tmp_path: Path, repo_file: str | None, kind: str
) -> None:
    wanted = hosted(repo_file) if repo_file else stored(hub.storage("m", {"a": MODEL}))
    path = f"/{REPO}/resolve/{REVISION}/{repo_file}" if repo_file else "/folder/a"
    hub.contents[path] = hub.contents[path][:-1] + b"\0"
    error = failure(wanted, tmp_path)
    assert isinstance(error, RunFailed)
    assert error.what == f"wrong checksum of {repo_file or 'a'}; removed the file"
    assert error.where == hub.url + path
    assert error.expected.startswith(f"{kind} ")
    assert error.found.startswith(f"{kind} ")
    assert error.found != error.expected
    assert left(tmp_path) == []


@pytest.mark.parametrize("name", ["../stolen", "/etc/stolen", "a/../../stolen", ".."])
@pytest.mark.parametrize("publisher", ["storage", "hub"])
def test_file_outside_of_the_folder_is_refused(hub: Publisher, tmp_path: Path, publisher: str, name: str) -> None:
    files = {"good": DATA, name: b"evil"}
    if publisher == "hub":
        hub.repository("o/evil", REVISION, files)
    wanted = hosted(repo="o/evil") if publisher == "hub" else stored(hub.storage("m", files))
    error = failure(wanted, tmp_path / "in")
    assert isinstance(error, RunFailed)
    assert error.what == "file name outside the folder in a file list; downloaded no file"
    assert name in error.found
    assert not left(tmp_path)
    assert not hub.content_requests()


@pytest.mark.parametrize(("code", "tries"), [(503, 3), (429, 3), (418, 1)])
def test_server_errors_are_retried_and_refusals_are_not(
    server: Publisher, tmp_path: Path, code: int, tries: int
) -> None:
    uri = server.storage("m", {"a": DATA})
    server.answers["/folder/a"] = Answer(code)
    error = failure(stored(uri), tmp_path)
    assert isinstance(error, RunFailed)
    assert str(code) in error.found
    assert len(server.content_requests(method="HEAD")) == tries
    assert left(tmp_path) == []


def test_missing_network_is_reported(server: Publisher, tmp_path: Path) -> None:
    uri, said = server.storage("m", {"a": DATA}), []
    server.__exit__()
    host = server.url.removeprefix("http://")
    with pytest.raises(EnvironmentMissing) as caught:
        fetch(stored(uri), tmp_path, lambda text, _: said.append(text))
    assert (caught.value.what, caught.value.where) == ("server unreachable", host)
    assert said == [
        f"dataset: listing files of {uri}",
        *[f"retry in {wait} s: {host} is unreachable" for wait in wire.WAITS_S],
    ]


def test_outage_of_a_host_that_answered_before_is_waited_for(
    server: Publisher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "LATER_WAITS_S", (0.02, 0.02))
    server.cuts["/folder/b"] = [100_000, 0, 0, 0]
    bring(stored(server.storage("m", {"b": MODEL})), tmp_path)
    assert len(server.content_requests()) == 5
    server.__exit__()
    failed = failure(stored(f"{server.url}/metadata/m.uri", "c"), tmp_path)
    assert isinstance(failed, EnvironmentMissing)


def test_retries_are_reported_with_their_cause(server: Publisher, tmp_path: Path) -> None:
    uri = server.storage("m", {"a": DATA, "b": MODEL})
    server.cuts["/folder/a"] = [100]
    server.answers["/folder/b"] = Answer(503)
    said: list[str] = []
    fetch(stored(uri, "a"), tmp_path, lambda text, _: said.append(text))
    with pytest.raises(RunFailed):
        fetch(stored(uri, "b"), tmp_path, lambda text, _: said.append(text))
    host = server.url.removeprefix("http://")
    again = [text for text in said if text.startswith("retry in")]
    assert again[0] == f"retry in 0.01 s: connection to {host} lost"
    assert again[1] == f"retry in 0.01 s: {server.url}/folder/b: HTTP 503 Service Unavailable"


def test_too_small_disk_is_refused_before_the_download(server: Publisher, tmp_path: Path) -> None:
    uri = server.storage("m", {"a": DATA, "b": MODEL})
    server.sizes["/folder/b"] = 10**18
    error = failure(stored(uri), tmp_path / "new" / "folder")
    assert isinstance(error, EnvironmentMissing)
    assert error.what == "not enough disk space for this download"
    assert error.where == str(tmp_path / "new" / "folder")
    assert error.expected == "1.0 EB free"
    assert error.found.endswith("B free")
    assert server.content_requests() == []
    assert left(tmp_path) == []


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", folder]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, stderr=subprocess.DEVNULL).returncode:
        pytest.skip("only root may mount a disk for this test")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def test_full_disk_ends_the_download(server: Publisher, tmp_path: Path) -> None:
    big = MODEL * 3
    uri = server.storage("m", {"a": DATA, "b": big})
    server.cuts["/folder/b"] = [100_000]
    with mounted(tmp_path, "size=1m") as disk:

        def fill(asked: Asked) -> None:
            if "Range" in asked.headers:
                (disk / "other").write_bytes(bytes(700_000))

        bring(stored(uri, "a"), disk)
        server.watch = fill
        error = failure(stored(uri), disk)
        assert isinstance(error, EnvironmentMissing)
        assert error.what.startswith("disk full during a download")
        assert error.where == str(disk)
        assert left(disk) == ["a", f"b.{md5(big)[:8]}.part", "other"]
        (disk / "other").unlink()
        server.watch = lambda _: None
        server.asked.clear()
        bring(stored(uri), disk)
        assert "Range" in server.content_requests()[0].headers
        assert (disk / "b").read_bytes() == big


def test_unwritable_folder_is_refused(server: Publisher, tmp_path: Path) -> None:
    with mounted(tmp_path, "ro") as disk:
        error = failure(stored(server.storage("m", {"a": DATA})), disk / "new")
        assert isinstance(error, EnvironmentMissing)
        assert error.what == "no write permission in the download folder"
        assert error.where == str(disk / "new")
        assert "LAB_DATASET" in error.hint


def start(wanted: Download, target: Path, url: str) -> subprocess.Popen[str]:
    environment = os.environ | {"HF_ENDPOINT": url, "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", FETCH, wanted.model_dump_json(), str(target)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_part(target: Path) -> Path:
    for _ in range(6000):
        for part in target.glob("*.part"):
            if part.stat().st_size:
                return part
        time.sleep(0.01)
    pytest.fail("nothing comes")


def test_partial_file_of_a_killed_process_is_resumed(hub: Publisher, tmp_path: Path) -> None:
    hub.pause_s = 0.2
    with start(hosted("model-*"), tmp_path, hub.url) as process:
        part = wait_for_part(tmp_path)
        assert "another process is downloading this file" in failure(hosted("model-*"), tmp_path).what
        process.send_signal(signal.SIGINT)
        assert process.wait(60) != 0
    assert left(tmp_path) == [part.name]
    come = part.read_bytes()
    assert MODEL.startswith(come)
    hub.asked.clear()
    hub.pause_s = 0
    with start(hosted("model-*"), tmp_path, hub.url) as process:
        assert process.wait(60) == 0
    assert left(tmp_path) == ["model-1.safetensors"]
    assert [asked.headers.get("Range") for asked in hub.content_requests()] == [f"bytes={len(come)}-"]


def test_interrupt_ends_a_download_whose_server_sends_no_data(hub: Publisher, tmp_path: Path) -> None:
    hub.pause_s = 300
    with start(hosted(), tmp_path, hub.url) as process:
        wait_for_part(tmp_path)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) != 0
