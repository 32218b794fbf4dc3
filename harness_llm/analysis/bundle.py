"""Bundle of a run for a bug report: redacted logs and configuration in a .tar.gz. `harness-llm bundle`."""

import io
import os
import shlex
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness_llm.analysis.redaction import Redactor
from harness_llm.config.commands import command
from harness_llm.errors import ConfigError
from harness_llm.fileio import write_atomically
from harness_llm.paths import Workspace
from harness_llm.runs.record import LOCK, RECORD, Run, load_run

OF_RUN = (RECORD, "*.conf", "*.config", "*.yaml", "*.log", "mlperf_log_*.txt", "accuracy.txt", "verify_*.txt")
"""Files of a run directory; the answers, the trace, the source and the records of the queries are left out."""
OF_SCENARIO = ("*.log",)
"""Logs of replicas and servers, beside the run directory."""
HEAD, TAIL = 64 << 10, 256 << 10  # bytes of a log
_DOCTOR_S = 120
_MAIN = "from harness_llm.cli.main import main; main()"
_USERS = ("USER", "LOGNAME", "SUDO_USER")
_LEAST_NAME = 3  # a shorter host name would also match words of the logs


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written.

    Attributes:
        files: sizes of the redacted files by name, in bytes.
        redacted: number of replacements by kind.
    """

    path: Path
    files: Mapping[str, int]
    redacted: Mapping[str, int]


def open_run_folder(folder: Path) -> Run:
    """The run in `folder`.

    Raises:
        ConfigError: it is no run directory.
    """
    if not (folder / LOCK).is_file():
        raise ConfigError(
            "no run found",
            where=str(folder),
            expected="a run directory, build/logs/<time>/<system>/<benchmark>/<scenario>/<test>",
            hint=f"{command('runs')} lists the folders of all runs",
        )
    return load_run(folder.resolve())


def make_bundle(run: Run, doctor: str, workspace: Workspace, target: Path | None = None) -> Bundle:
    """Write the bundle of `run` with the output of `doctor`, below build/bundles if there is no `target`."""
    name = "_".join((run.path.parts[-5], str(run.run_key).replace("/", "_")))
    target = target or workspace.build / "bundles" / f"{name}.tar.gz"
    redact = Redactor(_names(run, workspace))
    texts = {path: redact(text) for path, text in {**dict(_texts(run)), "doctor.txt": doctor}.items()}
    files = {path: text.encode() for path, text in texts.items() if text}
    target.parent.mkdir(parents=True, exist_ok=True)
    with write_atomically(target) as temporary, tarfile.open(temporary, "w:gz") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(f"{name}/{path}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return Bundle(target, {path: len(content) for path, content in files.items()}, redact.counts)


def _texts(run: Run) -> Iterator[tuple[str, str]]:
    """Name in the bundle and text of each file."""
    for folder, globs, prefix in ((run.path, OF_RUN, ""), (run.path.parent, OF_SCENARIO, "replicas/")):
        for file in sorted({file for glob in globs for file in folder.glob(glob) if file.is_file()}):
            yield f"{prefix}{file.name}", ends(file) if file.suffix in (".log", ".txt") else file.read_text()


def ends(file: Path, head: int = HEAD, tail: int = TAIL) -> str:
    """The text of `file`; of a long one, the lines at its start and at its end."""
    size = file.stat().st_size
    with file.open("rb") as log:
        if size <= head + tail:
            return log.read().decode(errors="replace")
        start = log.read(head).rpartition(b"\n")[0]
        log.seek(size - tail)
        end = log.read().partition(b"\n")[2]
    left_out = size - len(start) - len(end)
    return f"{start.decode(errors='replace')}\n[{left_out} bytes left out]\n{end.decode(errors='replace')}"


def _names(run: Run, workspace: Workspace) -> dict[str, set[str]]:
    """Private names of this machine and of the run's nodes, by kind."""
    host = socket.gethostname()
    nodes = set(run.record.nodes) if run.record else set()
    hosts = {name for name in (host, host.partition(".")[0], *nodes) if len(name) >= _LEAST_NAME} - {"localhost"}
    users = {os.environ.get(name, "") for name in _USERS} - {"", "root", run.run_key.benchmark, run.system}
    folders = {str(workspace.root), os.environ.get("HOME", "")} - {"", "/"}
    return {"folder": folders, "host": hosts, "user": users}


def ask_doctor(run: Run) -> str:
    """The checks of `harness-llm doctor` with the options of `run`, on this machine, now; empty without a record."""
    if run.record is None:
        return ""
    words = shlex.split(run.record.command)[2:]
    command = [sys.executable, "-c", _MAIN, "doctor", *words, "--no-package"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DOCTOR_S, check=False)
    except subprocess.TimeoutExpired:
        return f"the doctor did not end within {_DOCTOR_S} s\n"
    shown = shlex.join(["harness-llm", *command[3:]])
    return f"$ {shown}\n{done.stdout}{done.stderr}exit code {done.returncode}\n"
