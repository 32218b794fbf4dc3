"""The Hugging Face token: read where the host keeps it, and shown inside as a file that nothing else tells of."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from harness_llm.containers.arguments import Mount
from harness_llm.errors import ConfigError

INSIDE = "/run/secrets/hf_token"
ENVIRONMENT = {"HF_TOKEN_PATH": INSIDE}
"""What huggingface_hub inside reads; without a token there is no such file."""
_VARIABLES = ("HUGGINGFACE_ACCESS_TOKEN", "HF_TOKEN")
_FILE_VARIABLE = "HF_TOKEN_PATH"
_LOGIN = Path(".cache/huggingface/token")


def find_token(environ: Mapping[str, str], home: Path) -> str:
    """The token of a variable, else of the file that HF_TOKEN_PATH names, else of huggingface_hub's login; or nothing.

    Raises:
        ConfigError: the file that is named cannot be read.
    """
    if named := next((environ[name] for name in _VARIABLES if environ.get(name)), ""):
        return named.strip()
    file = environ.get(_FILE_VARIABLE)
    try:
        return Path(file or home / _LOGIN).read_text().strip()
    except FileNotFoundError:
        return ""  # the Makefile names the login's file whether there is a login or not
    except OSError as error:
        raise ConfigError(
            "the file of the Hugging Face token cannot be read", _FILE_VARIABLE, found=str(error)
        ) from error


@contextmanager
def token_mounts(token: str, uid: int, gid: int) -> Iterator[tuple[Mount, ...]]:
    """While a container runs, a file with `token` that its user alone may read; no mount where there is no token."""
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
    """A folder that no disk keeps, if there is one."""
    folders = (os.environ.get("XDG_RUNTIME_DIR", ""), "/dev/shm")  # noqa: S108 (in a folder of our own there)
    return next((folder for folder in folders if folder and os.access(folder, os.W_OK)), None)
