"""Secrets of the host for a container: the Hugging Face token and secret variables, in private files."""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness_llm.containers.arguments import Container, Mount
from harness_llm.errors import ConfigError

FOLDER = "/run/secrets"
TOKEN = "hf_token"  # noqa: S105 - a file name
VARIABLES = "variables.sh"
# Sets the variables in the command's process only; `docker inspect` and arguments do not show them.
_WITH_VARIABLES = ("sh", "-c", f'. {FOLDER}/{VARIABLES} && exec "$@"', "sh")
_VARIABLES = ("HUGGINGFACE_ACCESS_TOKEN", "HF_TOKEN")
_FILE_VARIABLE = "HF_TOKEN_PATH"
_CLOUDFLARED = ".cloudflared"


def find_token(environ: Mapping[str, str], home: Path) -> str:
    """Return the token of a variable, else of HF_TOKEN_PATH's file, else of huggingface_hub's login; empty if none.

    The login is in HF_HOME, else in huggingface/ of XDG_CACHE_HOME or ~/.cache (huggingface_hub/constants.py), as for
    HF_TOKEN_PATH in the Makefile.

    Raises:
        ConfigError: unreadable file.
    """
    if named := next((environ[name] for name in _VARIABLES if environ.get(name)), ""):
        return named.strip()
    folder = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or home / ".cache", "huggingface")
    try:
        return Path(environ.get(_FILE_VARIABLE) or Path(folder, "token")).read_text().strip()
    except FileNotFoundError:
        return ""  # the Makefile always sets HF_TOKEN_PATH
    except OSError as error:
        raise ConfigError("unreadable file of the Hugging Face token", _FILE_VARIABLE, found=str(error)) from error


def cloudflared_mounts(home: Path) -> list[Mount]:
    """Return the mounts of cloudflared, a static program, and of its logins to members' storage; none without both."""
    program, logins = shutil.which("cloudflared"), home / _CLOUDFLARED
    if not (program and logins.is_dir()):
        return []
    mounted = {Path(program).resolve(): "/usr/local/bin/cloudflared", logins: f"/tmp/{_CLOUDFLARED}"}  # noqa: S108 - HOME
    return [Mount(source, target, writable=False) for source, target in mounted.items()]


@contextmanager
def with_secrets(
    container: Container, token: str, variables: Mapping[str, str], login: Sequence[Mount] = ()
) -> Iterator[Container]:
    """Yield `container` with mounts of temporary files that only its user can read.

    Args:
        token: Hugging Face token; without one, the file of HF_TOKEN_PATH does not exist.
        variables: secret variables of the container's command.
        login: from `cloudflared_mounts`.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    files = {name: text for name, text in ((TOKEN, token), (VARIABLES, exports)) if text}
    uid, gid = map(int, container.user.split(":"))
    with tempfile.TemporaryDirectory(prefix="harness-llm-", dir=memory_folder()) as folder:
        mounts = [_write(Path(folder, name), text, uid, gid) for name, text in files.items()]
        yield replace(
            container,
            mounts=(*container.mounts, *mounts, *login),
            environment={**container.environment, _FILE_VARIABLE: f"{FOLDER}/{TOKEN}"},
            wrapper=_WITH_VARIABLES if variables else (),
        )


def _write(file: Path, text: str, uid: int, gid: int) -> Mount:
    """Write a file that only `uid` can read; return its mount."""
    file.touch(mode=0o600)
    file.write_text(text)
    file.chmod(0o400)
    if os.getuid() != uid:
        os.chown(file, uid, gid)
    return Mount(file, f"{FOLDER}/{file.name}", writable=False)


def memory_folder() -> str | None:
    """Return a writable folder in memory, if any."""
    folders = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")  # noqa: S108 (callers create their own folder)
    return next((folder for folder in folders if folder and os.access(folder, os.W_OK)), None)
