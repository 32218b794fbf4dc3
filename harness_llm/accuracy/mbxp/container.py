"""The container that runs programs: without network, rights or a disk, and with little memory, processes and time."""

import contextlib
import json
import subprocess
import uuid
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from harness_llm.accuracy.mbxp import runner
from harness_llm.accuracy.mbxp.programs import Program, canaries
from harness_llm.errors import EnvironmentMissing, RunFailed

ENGINES = ("docker", "podman")
IMAGE = "harness-llm-mbxp"
IMAGE_SOURCE = "setup/mbxp"
"""Where its Dockerfile is; the reference publishes no image, but the one that its users build (Dockerfile.eval)."""

_SCRATCH = "/tmp"  # noqa: S108 - the container's own
_BATCH = 100  # programs per container, so that what one leaves behind does not stay for long
_START_S = 60


def arguments(engine: str, name: str) -> list[str]:
    """The command that runs `runner` in a container called `name`."""
    return [
        *(engine, "run", "--rm", "--interactive", "--name", name, "--pull", "never"),
        *("--network", "none", "--user", "65534:65534", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--memory", "2g", "--memory-swap", "2g", "--cpus", "1", "--pids-limit", "128"),
        # A compiled program is executed from where it is written.
        *("--read-only", "--tmpfs", f"{_SCRATCH}:rw,exec,nosuid,nodev,size=256m"),
        *("--workdir", _SCRATCH, "--env", f"HOME={_SCRATCH}"),
        *(IMAGE, "python3", "-c", Path(runner.__file__).read_text()),
    ]


def run_programs(programs: Sequence[Program], workers: int) -> list[bool]:
    """Whether each program passes; up to `workers` containers at a time.

    Raises:
        EnvironmentMissing: no container engine answers, or its image is not there or lacks a language.
        RunFailed: a container ended early.
    """
    engine = find_engine()
    _require_languages(engine, {program.language for program in programs})
    batches = [programs[start : start + _BATCH] for start in range(0, len(programs), _BATCH)]
    with ThreadPoolExecutor(workers) as pool:
        return list(chain.from_iterable(pool.map(partial(_run, engine), batches)))


def find_engine() -> str:
    """The first container engine that works and has the image.

    Raises:
        EnvironmentMissing: there is none.
    """
    complaints = {engine: _complaint(engine, "info") for engine in ENGINES}
    working = [engine for engine, complaint in complaints.items() if not complaint]
    if not working:
        raise EnvironmentMissing(
            "MBXP cannot be scored without a container engine, since programs that a model wrote run nowhere else",
            expected=" or ".join(ENGINES),
            found="; ".join(f"{engine}: {complaint}" for engine, complaint in complaints.items()),
            hint="start the Docker daemon, or install podman",
        )
    for engine in working:
        if not _complaint(engine, "image", "inspect", IMAGE):
            return engine
    raise EnvironmentMissing(
        "the container image that runs MBXP's programs is not there",
        expected=IMAGE,
        hint=f"{working[0]} build --tag {IMAGE} {IMAGE_SOURCE}",
    )


def _complaint(*command: str) -> str:
    """Why a command did not end well; empty if it did."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_START_S)
    except FileNotFoundError:
        return "not installed"
    except subprocess.TimeoutExpired:
        return f"no answer for {_START_S} s"
    return (done.stderr.strip() or "an unexplained failure").splitlines()[-1] if done.returncode else ""


def _require_languages(engine: str, languages: Collection[str]) -> None:
    """A language that is not installed would look like programs that fail."""
    tried = sorted(languages)
    results = _run(engine, [program for language in tried for program in canaries(language)])
    verdicts = zip(results[::2], results[1::2], strict=True)
    lacking = [language for language, verdict in zip(tried, verdicts, strict=True) if verdict != (True, False)]
    if lacking:
        raise EnvironmentMissing(
            "the container image cannot run every language of MBXP",
            where=IMAGE,
            expected=", ".join(tried),
            found=f"small programs of known outcome go wrong in {', '.join(lacking)}",
            hint=f"{engine} build --no-cache --tag {IMAGE} {IMAGE_SOURCE}",
        )


def _run(engine: str, programs: Sequence[Program]) -> list[bool]:
    lines = "".join(json.dumps(program._asdict()) + "\n" for program in programs)
    limit = _START_S + len(programs) * (runner.COMPILE_S + runner.RUN_S)
    with _container(engine) as name:
        try:
            done = subprocess.run(
                arguments(engine, name), input=lines, capture_output=True, text=True, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired as error:
            raise RunFailed("the container that runs MBXP's programs hangs", expected=f"an end in {limit} s") from error
    results = done.stdout.splitlines()
    if done.returncode or len(results) != len(programs):
        raise RunFailed(
            "the container that runs MBXP's programs ended early",
            expected=f"{len(programs)} results and exit code 0",
            found=f"{len(results)} results and exit code {done.returncode}; {done.stderr.strip()[-500:]}",
        )
    return [json.loads(result) for result in results]


@contextlib.contextmanager
def _container(engine: str) -> Iterator[str]:
    """A name for a container that is gone afterwards, even where this program is interrupted."""
    name = f"{IMAGE}-{uuid.uuid4().hex}"
    try:
        yield name
    finally:
        subprocess.run([engine, "rm", "--force", name], capture_output=True, check=False)
