"""A Docker daemon of the tests' own: installed where it is missing, separate from any other, removed afterwards."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GROUP = "docker"
PATH = "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin:/usr/local/bin"
"""Debian's own programs first: another client of Docker may not be able to build."""
_PACKAGES = {"dockerd": "docker.io", "debootstrap": "debootstrap"}
_START_S = 60
_STOP_S = 60


class NoDaemon(Exception):
    """No daemon can be started here, with the reason."""


@dataclass(frozen=True)
class Dockerd:
    """A daemon that answers."""

    process: "subprocess.Popen[bytes]"
    socket: Path
    data: Path

    @property
    def host(self) -> str:
        """For DOCKER_HOST."""
        return f"unix://{self.socket}"

    def docker(self, *words: str) -> str:
        """What a command of the client prints."""
        return run("docker", "--host", self.host, *words)


def run(*command: str | Path) -> str:
    """What a command prints; its error is shown if it fails."""
    done = subprocess.run(
        command, env=os.environ | {"PATH": PATH}, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}"
    return done.stdout


def install() -> None:
    """Bring Docker and debootstrap.

    Raises:
        NoDaemon: this user may not, or there is no Debian that has them.
    """
    if os.getuid():
        raise NoDaemon("only root can install and start a Docker daemon")
    missing = [package for program, package in _PACKAGES.items() if not shutil.which(program, path=PATH)]
    if subprocess.run(["python3", "-c", "import ensurepip"], env={"PATH": PATH}, check=False).returncode:
        missing.append("python3-venv")  # for users who may not read root's Python
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise NoDaemon(f"there is no {', '.join(missing)}, and no apt-get to install it with")
    try:
        run("apt-get", "update")
        run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends", *missing)
    except AssertionError as error:
        raise NoDaemon(f"apt-get cannot install {', '.join(missing)}: {error}") from error


@contextmanager
def start(
    data: Path, options: Sequence[str] = (), *, enter: Sequence[str] = (), programs: Path | None = None
) -> Iterator[Dockerd]:
    """Run a daemon that keeps everything below `data`, which is emptied before and removed after.

    It needs no firewall and no bridge, so containers use the machine's own network. It ends when this process does.

    Args:
        data: its images and containers.
        options: of dockerd.
        enter: the words that run a command in another mount namespace.
        programs: a folder that comes first on its PATH.

    Raises:
        NoDaemon: it does not come up; with the end of its log.
    """
    _empty(data)
    data.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="hl-dockerd-") as folder:
        Path(folder).chmod(0o755)  # for the socket
        files = Path(folder)
        command = [
            *enter,
            *(
                "setpriv",
                "--pdeathsig",
                "TERM",
                "dockerd",
                "--data-root",
                str(data),
                "--exec-root",
                str(files / "exec"),
            ),
            *("--pidfile", str(files / "pid"), "--host", f"unix://{files / 'socket'}", "--group", GROUP),
            *("--iptables=false", "--bridge=none", *options),
        ]
        with (files / "log").open("wb") as log:
            path = f"{programs}:{PATH}" if programs else PATH
            process = subprocess.Popen(
                command, env=os.environ | {"PATH": path}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            _wait(process, files / "socket", files / "log")
            yield Dockerd(process, files / "socket", data)
        finally:
            process.terminate()
            process.wait(_STOP_S)
            _empty(files / "exec")
            _empty(data)


def _wait(process: "subprocess.Popen[bytes]", socket: Path, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        if (
            subprocess.run(
                ["docker", "--host", f"unix://{socket}", "info"], env={"PATH": PATH}, capture_output=True, check=False
            ).returncode
            == 0
        ):
            return
        time.sleep(0.3)
    raise NoDaemon("the Docker daemon does not come up:\n" + "\n".join(log.read_text().splitlines()[-8:]))


def _empty(data: Path) -> None:
    """What a daemon that was killed left mounted is unmounted first."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{data}/")), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
    shutil.rmtree(data, ignore_errors=True)
