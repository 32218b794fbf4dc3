"""`harness-llm bundle`."""

import json
import socket
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine, Done
from runs import write_run

from harness_llm.analysis.bundle import ends

SECRET = "hf_" + "aB3" * 11
LEFT_OUT = ("mlperf_log_accuracy.json", "mlperf_log_trace.json", "queries.parquet", "loadgen.json", "run.lock")


@pytest.fixture
def bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    monkeypatch.setenv("HARNESS_LLM_WORKSPACE", str(tmp_path))
    return lambda *words: CommandLine(monkeypatch, capsys)("bundle", *map(str, words))


def write(tmp_path: Path) -> Path:
    """A run with private text in each file."""
    command = "harness-llm submit --no-such-option --scenarios Offline"
    reasons = [f"no answer of http://{socket.gethostname()}:8000", f"log {tmp_path}/build/replica-0.log"]
    path = write_run(tmp_path / "build" / "logs", "Offline", "performance", command=command, reasons=reasons).path
    for name in LEFT_OUT:
        (path / name).write_text(SECRET)
    (path / "loadgen.log").write_text(f"HF_TOKEN={SECRET}\nbound to 1 CPUs\n")
    (path.parent / "replica-0.log").write_text(f"loading {tmp_path}/build/models with --api-key {SECRET}\n")
    (path.parent / "server-0.log").write_text("")
    return path


def unpack(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name.partition("/")[2]: file.read().decode() for name, file in files.items() if file}


def test_bundle_has_redacted_logs_and_configuration(tmp_path: Path, bundle: Callable[..., Done]) -> None:
    done = bundle(write(tmp_path))
    assert done.code == 0, done.err
    archive = Path(done.out.strip())
    assert archive == tmp_path / "build" / "bundles" / "20260701T120000Z_demo_Offline_performance.tar.gz"
    files = unpack(archive)
    assert set(files) == {
        "run.json",
        "config.yaml",
        "user.conf",
        "loadgen.log",
        "mlperf_log_detail.txt",
        "mlperf_log_summary.txt",
        "accuracy.txt",
        "verify_accuracy.txt",
        "verify_output_len.txt",
        "replicas/replica-0.log",
        "doctor.txt",
    }
    whole = "\n".join(files.values())
    for private in (SECRET, str(tmp_path), f"http://{socket.gethostname()}"):
        assert private not in whole
    assert "bound to 1 CPUs" in files["loadgen.log"]
    assert "REDACTED-folder/build/models with --api-key REDACTED-secret" in files["replicas/replica-0.log"]
    assert json.loads(files["run.json"])["metrics"] == {"tokens_per_second": 1234.5}
    assert "No such option: --no-such-option" in files["doctor.txt"]
    for name in files:
        assert f"bytes  {name}\n" in done.err
    assert "Look at the files before you publish them" in done.err
    assert "folder" in done.err.partition("redacted: ")[2]


def test_run_without_record_has_a_bundle(tmp_path: Path, bundle: Callable[..., Done]) -> None:
    path = write_run(tmp_path / "build" / "logs", "Server", "accuracy", finished=False).path
    done = bundle(path, "--output", tmp_path / "new" / "report.tar.gz")
    assert done.code == 0, done.err
    assert {"user.conf", "mlperf_log_detail.txt"} <= set(unpack(tmp_path / "new" / "report.tar.gz"))


def test_folder_that_is_no_run_is_refused(tmp_path: Path, bundle: Callable[..., Done]) -> None:
    done = bundle(tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "no run found" in done.err


def test_long_logs_are_cut_in_the_middle_at_lines(tmp_path: Path) -> None:
    log = tmp_path / "replica-0.log"
    log.write_text("".join(f"line {number:03}\n" for number in range(100)))
    assert ends(log, head=25, tail=25) == "line 000\nline 001\n[865 bytes left out]\nline 098\nline 099\n"
    assert ends(log, head=450, tail=450) == log.read_text()
