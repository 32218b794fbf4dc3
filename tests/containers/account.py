"""An ordinary user of this machine, with a home folder, a checkout and the machine's package settings."""

import grp
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from dockerd import GROUP, PATH, run

from harness_llm.paths import CHECKOUT
from setup.uv import pip_options

NAME = "harness-llm-test"


@dataclass(frozen=True)
class Account:
    """The user; `groups` are further ones by name, `enter` the words that run a command in another mount namespace."""

    home: Path
    groups: tuple[str, ...] = (GROUP,)
    environment: Mapping[str, str] = field(default_factory=dict)
    enter: tuple[str, ...] = ()
    name: str = NAME

    @property
    def uid(self) -> int:
        """Its number."""
        return pwd.getpwnam(self.name).pw_uid

    @property
    def gid(self) -> int:
        """That of its own group."""
        return pwd.getpwnam(self.name).pw_gid

    @property
    def checkout(self) -> Path:
        """Its copy of the files of this checkout."""
        return self.home / "checkout"

    def start(self, *command: str | Path, **environment: str) -> "subprocess.Popen[str]":
        """A command in the checkout, in a session of its own."""
        return subprocess.Popen(
            [*self.enter, *self._as_user, *command],
            env=self._environment | dict(self.environment) | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def _as_user(self) -> tuple[str, ...]:
        """The words that run a command as the user, in the checkout, with Ctrl-C as it is in a terminal."""
        groups = ",".join(str(grp.getgrnam(group).gr_gid) for group in self.groups)
        return (
            *("setpriv", "--reuid", str(self.uid), "--regid", str(self.gid)),
            *(("--groups", groups) if groups else ("--clear-groups",)),
            *("--", "env", "--chdir", str(self.checkout), "--default-signal=INT"),
        )

    def run(self, *command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
        """A command's end."""
        process = self.start(*command, **environment)
        out, err = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def write(self, file: Path, text: str) -> None:
        """A file of the user's own."""
        self.run("mkdir", "--parents", file.parent)
        file.write_text(text)
        file.chmod(0o600)
        os.chown(file, self.uid, self.gid)

    def copy(self, source: Path, target: Path, without: str = "") -> None:
        """A folder that becomes the user's own, but for what is called `without`."""
        shutil.copytree(source, target, ignore=shutil.ignore_patterns(without), dirs_exist_ok=True)
        run("chown", "--recursive", f"{self.uid}:{self.gid}", target)

    @property
    def _environment(self) -> dict[str, str]:
        return {"HOME": str(self.home), "PATH": PATH, "LANG": "C.UTF-8", "TMPDIR": str(self.home / "tmp")}


@contextmanager
def make_account(environment: Mapping[str, str], *, name: str = NAME, enter: tuple[str, ...] = ()) -> Iterator[Account]:
    """Add the user, and remove it and all that it owns; `environment` is that of its commands."""
    with tempfile.TemporaryDirectory(prefix="hl-user-") as folder:
        Path(folder).chmod(0o755)
        home = Path(folder, "home")
        subprocess.run(["userdel", name], env={"PATH": PATH}, capture_output=True, check=False)  # a killed session's
        run("useradd", "--create-home", "--home-dir", home, "--groups", GROUP, name)
        try:
            account = Account(home, environment=environment, enter=enter, name=name)
            _write_pip_configuration(home / ".config/pip/pip.conf")
            (home / "tmp").mkdir()
            copy_checkout(account.checkout)
            run("chown", "--recursive", f"{account.uid}:{account.gid}", home)
            yield account
        finally:
            run("userdel", name)


def _write_pip_configuration(file: Path) -> None:
    """Package settings of this machine, whose variables and files belong to root."""
    python = Path(sys.base_prefix, "bin", "python3")  # the environment's own has no pip
    listing = subprocess.run([python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    lines = [f"{option} = {' '.join(values)}" for option, values in pip_options(listing).items()]
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(["[global]", *lines, ""]))


def copy_checkout(target: Path) -> None:
    """The repository, with what is changed in it and not committed yet."""
    run("git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, target)
    names = run("git", "-C", CHECKOUT, "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    for name in names:
        source, copy = CHECKOUT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
        else:
            copy.unlink(missing_ok=True)


def reset_settings(account: Account) -> None:
    """Give an account the settings of this checkout again."""
    for folder in ("models", "code"):
        shutil.rmtree(account.checkout / folder)
        account.copy(CHECKOUT / folder, account.checkout / folder)
