"""The command line as a user runs it, with its own workspace and temporary folder."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

from harness_llm.config.assets import Assets
from harness_llm.paths import CHECKOUT, ROOT_VARIABLE, Workspace
from harness_llm.runs.inherited_environment import inherited
from harness_llm.runs.record import RECORD

T = TypeVar("T")

# A shell that starts us in the background makes its children ignore Ctrl-C; a terminal does not.
MAIN = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from harness_llm.cli.main import main; main()"
)
# The official checker is run where a test asks for it.
UNSET = ("MLPERF_INFERENCE_DIR", "HARNESS_LLM_VERBOSE", "LAB_MODEL", "LAB_DATASET", "MLPERF_SCRATCH_PATH")


def prepared_workspace(root: Path, assets: Assets) -> Workspace:
    """Copy what the program reads of the checkout, without runs and trees."""
    for name in ("models", "code"):
        shutil.copytree(CHECKOUT / name, root / name)
    _lower_target(root / "code" / "user_cpu.conf")
    workspace = Workspace(root)
    for checkpoint in (assets.original, assets.checkpoint):
        shutil.copytree(checkpoint, workspace.models / checkpoint.name)
    shutil.copytree(assets.calibration.parent, workspace.data / assets.calibration.parent.name)
    cache = Workspace(CHECKOUT).cache
    cache.mkdir(exist_ok=True)
    workspace.cache.symlink_to(cache)
    return workspace


def _lower_target(conf: Path) -> None:
    """Halve the arrivals of Server: its runs must be VALID beside other programs that use all cores."""
    shipped = "llama2-70b.Server.target_qps = 100\n"
    text = conf.read_text()
    assert shipped in text
    conf.write_text(text.replace(shipped, "llama2-70b.Server.target_qps = 50\n"))


@dataclass(frozen=True)
class Ended:
    """A command that has ended, with its output."""

    code: int
    out: str
    err: str
    seconds: float


@dataclass
class Command:
    """A command under way."""

    process: subprocess.Popen[bytes]
    folder: Path
    began: float = field(default_factory=time.monotonic)

    def wait(self, timeout_s: float = 900) -> Ended:
        """Its end."""
        code = self.process.wait(timeout_s)
        out, err = ((self.folder / name).read_text() for name in ("out", "err"))
        return Ended(code, out, err, time.monotonic() - self.began)


class Terminal:
    """Starts commands in `workspace`."""

    def __init__(self, workspace: Workspace) -> None:
        # Short: the path of a socket has at most 107 characters.
        self.temporary = Path(tempfile.mkdtemp(prefix="hl-"))
        self.workspace = workspace
        kept = {key: value for key, value in os.environ.items() if key not in UNSET}
        self._commands: list[Command] = []
        self._environment = kept | {ROOT_VARIABLE: str(workspace.root), "TMPDIR": str(self.temporary)}

    def start(self, *words: str) -> Command:
        return self._start([sys.executable, "-c", MAIN, *words], self._environment, CHECKOUT)

    def as_user(self, *command: str, folder: Path = CHECKOUT, **environ: str) -> Ended:
        """Run any command with the variables of a login shell, those of engines, and `environ`."""
        own = {name: self._environment[name] for name in ("HOME", "PATH", "TMPDIR", ROOT_VARIABLE)}
        return self._start(command, own | inherited(self._environment) | environ, folder).wait()

    def _start(self, command: Sequence[str], environ: Mapping[str, str], cwd: Path) -> Command:
        folder = Path(tempfile.mkdtemp(dir=self.temporary))
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._commands.append(Command(process, folder))
        return self._commands[-1]

    def run(self, *words: str) -> Ended:
        return self.start(*words).wait()

    def until_valid(self, submit: Callable[[], T]) -> T:
        """Call `submit` in an empty workspace, at most three times, until LoadGen calls no run INVALID.

        Other programs that use all cores delay answers beyond the limits; that is no fault of the program.
        """
        for _ in range(2):
            made = submit()
            if not _is_any_invalid(self.workspace.logs):
                return made
            for folder in (self.workspace.logs, self.workspace.submission):
                shutil.rmtree(folder, ignore_errors=True)
        return submit()

    def processes(self) -> list[psutil.Process]:
        """All processes with this workspace in their environment, also those whose parent has ended."""
        return [p for p in psutil.process_iter() if _environment(p).get(ROOT_VARIABLE) == str(self.workspace.root)]

    def socket_folders(self) -> list[Path]:
        return [path for path in self.temporary.glob("harness-llm-*") if path.is_dir()]

    def close(self) -> None:
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # ended meanwhile
                process.kill()
        for command in self._commands:
            command.process.wait()
        shutil.rmtree(self.temporary)


def _is_any_invalid(logs: Path) -> bool:
    return any(json.loads(record.read_text())["state"] == "INVALID" for record in logs.rglob(RECORD))


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # ended meanwhile, or another user's
        return {}
