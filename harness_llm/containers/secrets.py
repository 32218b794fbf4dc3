"""Hugging Face token: read it on the host, mount it in the container as a file."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness_llm.containers.arguments import Mount
from harness_llm.errors import ConfigError

INSIDE = "/run/secrets/hf_token"
ENVIRONMENT = {"HF_TOKEN_PATH": INSIDE}
"""Variable of huggingface_hub in the container; without a token the file does not exist."""
_VARIABLES = ("HUGGINGFACE_ACCESS_TOKEN", "HF_TOKEN")
_FILE_VARIABLE = "HF_TOKEN_PATH"
_LOGIN = Path(".cache/huggingface/token")


def find_token(environ: Mapping[str, str], home: Path) -> str:
    """Return the token of a variable, else of HF_TOKEN_PATH's file, else of huggingface_hub's login; empty if none.

    Raises:
        ConfigError: unreadable file.
    """
    if named := next((environ[name] for name in _VARIABLES if environ.get(name)), ""):
        return named.strip()
    file = environ.get(_FILE_VARIABLE)
    try:
        return Path(file or home / _LOGIN).read_text().strip()
    except FileNotFoundError:
        return ""  # the Makefile always sets HF_TOKEN_PATH
    except OSError as error:
        raise ConfigError("unreadable file of the Hugging Face token", _FILE_VARIABLE, found=str(error)) from error


@contextmanager
def token_mounts(token: str, uid: int, gid: int) -> Iterator[tuple[Mount, ...]]:
    """Yield the mount of a temporary file with `token`, readable for `uid` only; no mount without a token."""
    if not token:
        yield ()
        return
    with tempfile.TemporaryDirectory(prefix="harness-llm-", dir=memory_folder()) as folder:
        file = Path(folder, "hf_token")
        file.touch(mode=0o600)
        file.write_text(token)
        file.chmod(0o400)
        if os.getuid() != uid:
            os.chown(file, uid, gid)
        yield (Mount(file, INSIDE, writable=False),)


def memory_folder() -> str | None:
    """Return a writable folder in memory, if any."""
    folders = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")  # noqa: S108 (callers create their own folder)
    return next((folder for folder in folders if folder and os.access(folder, os.W_OK)), None)
