"""Choose where `make submission` runs: in containers or in this checkout's environments. Standard library only."""

import os
import shutil
import sys
from collections.abc import Mapping

from harness_llm.errors import ConfigError, exit_code_of
from harness_llm.hardware.pci import NO_ACCELERATOR, accelerators
from setup.builds import gpu_name

LOCAL, CONTAINER = "local", "container"
_VARIABLE = "ENVIRONMENT"


def where(environ: Mapping[str, str], *, accelerated: bool, docker: bool) -> str:
    """Return `local` or `container`: ENVIRONMENT, else `container` if accelerators are used and Docker is installed.

    With a Ray cluster: `local`, because replicas run in the environment of `ray start`.

    Args:
        accelerated: whether this machine has accelerators.
        docker: whether docker or podman is installed.

    Raises:
        ConfigError: unknown ENVIRONMENT.
    """
    asked = environ.get(_VARIABLE, "")
    if asked not in ("", LOCAL, CONTAINER):
        raise ConfigError(f"unknown {_VARIABLE} {asked}", where=_VARIABLE, expected=f"{LOCAL} or {CONTAINER}")
    if environ.get("HARNESS_LLM_IMAGE"):  # already in a container
        return LOCAL
    wanted = accelerated and docker and gpu_name(environ) != NO_ACCELERATOR and not environ.get("RAY_ADDRESS")
    return asked or (CONTAINER if wanted else LOCAL)


def main() -> None:
    """Print `local` or `container`."""
    docker = any(shutil.which(program) for program in (os.environ.get("DOCKER") or "docker", "podman"))
    sys.stdout.write(f"{where(os.environ, accelerated=bool(accelerators()), docker=docker)}\n")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
