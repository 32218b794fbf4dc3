"""Error for a container that Docker does not create or start."""

from harness_llm.errors import EnvironmentMissing

EXIT_CODES = (125, 126, 127)
"""Exit codes of `docker run` when Docker itself fails (docs.docker.com, "docker container run", exit status)."""
_LIMITS = (
    "the Docker daemon cannot raise a limit above its own; show its limits with"
    '\n      prlimit --pid "$(pidof dockerd)" --memlock --stack'
    "\n      and set lower ones (bytes), for example DOCKER_ARGS='--ulimit memlock=8388608 --ulimit stack=8388608'"
)
_HINTS = {"rlimit": _LIMITS}  # by a part of Docker's message


def refusal(message: str, *, where: str) -> EnvironmentMissing:
    """Return the error with Docker's message.

    Args:
        where: the image or program.
    """
    hint = next((hint for part, hint in _HINTS.items() if part in message), "")
    return EnvironmentMissing("Docker cannot start the container", where=where, found=message.strip(), hint=hint)
