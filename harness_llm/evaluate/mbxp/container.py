"""Score MBXP: run model-generated programs in a container without network, capabilities and disk.

Memory, processes and time are limited. Inside a container of this project, which has no container engine, the scoring
service starts it.
"""

import contextlib
import json
import subprocess
import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path

from harness_llm.errors import EnvironmentMissing, RunFailed
from harness_llm.evaluate import scoring_service as service
from harness_llm.evaluate.mbxp import runner
from harness_llm.evaluate.mbxp.programs import LANGUAGES, Language, Program, assemble, canaries
from harness_llm.evaluate.sandbox import NEVER, run_sandboxed

ENGINES = ("docker", "podman")
IMAGE = "harness-llm-mbxp"
IMAGE_SOURCE = "setup/mbxp"
"""Folder of the Dockerfile; the reference publishes no image, only a Dockerfile.eval."""

Run = Callable[[Sequence[Program]], list[bool]]
"""Function that runs up to `service.BATCH` programs in one container and returns whether each one passes."""

_SCRATCH = "/tmp"  # noqa: S108 - a path in the container
_START_S = 60


def arguments(engine: str, name: str) -> list[str]:
    """Command line that runs `runner` in a container called `name`."""
    return [
        *(engine, "run", "--rm", "--interactive", "--name", name, "--pull", "never"),
        *("--network", "none", "--user", "65534:65534", "--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--memory", "2g", "--memory-swap", "2g", "--cpus", "1", "--pids-limit", "128"),
        # exec: compiled programs run from this folder.
        *("--read-only", "--tmpfs", f"{_SCRATCH}:rw,exec,nosuid,nodev,size=256m"),
        *("--workdir", _SCRATCH, "--env", f"HOME={_SCRATCH}"),
        *(IMAGE, "python3", "-c", Path(runner.__file__).read_text()),
    ]


def score(targets: Sequence[str], answers: Sequence[str], workers: int) -> list[float]:
    """Score 100 for each program that passes its test, else 0.

    Args:
        targets: JSON texts, as for `programs.assemble`.
        answers: decoded answers, unchanged.
        workers: maximum number of containers at a time; each uses one core.

    Returns:
        One value per sample in a language of `LANGUAGES`; samples in other languages are left out.

    Raises:
        EnvironmentMissing: no container engine works, or the image is missing or lacks a language.
        RunFailed: a container ended early.
    """
    programs = [assemble(target, answer) for target, answer in zip(targets, answers, strict=True)]
    scored = [program for program in programs if program is not None]
    return [100.0 if passed else 0.0 for passed in run_programs(scored, workers)] if scored else []


def run_programs(programs: Sequence[Program], workers: int) -> list[bool]:
    """Run programs in up to `workers` containers at a time; return whether each program passes.

    Raises:
        EnvironmentMissing: no container engine works, or the image is missing or lacks a language.
        RunFailed: a container ended early.
    """
    run = _find_run()
    require_languages(run, {program.language for program in programs})
    batches = [programs[start : start + service.BATCH] for start in range(0, len(programs), service.BATCH)]
    with ThreadPoolExecutor(workers) as pool:
        return list(chain.from_iterable(pool.map(run, batches)))


def require_mbxp() -> None:
    """Check that programs in all languages can run; takes seconds, or minutes if the image must be built.

    Raises:
        EnvironmentMissing: no container engine works, or the image is missing or lacks a language.
        RunFailed: the build of the image failed.
    """
    require_languages(_find_run(), LANGUAGES)


def _find_run() -> Run:
    if service.is_offered():
        service.ask(service.RequireMbxp())
        return _ask
    return partial(run_batch, find_engine())


def _ask(programs: Sequence[Program]) -> list[bool]:
    texts = [service.ProgramText(language=program.language, code=program.code) for program in programs]
    passed: list[bool] = service.ask(service.RunMbxp(programs=texts))
    return passed


def find_engine() -> str:
    """Find the first container engine that works and has the image.

    Raises:
        EnvironmentMissing: no engine works, or none has the image.
    """
    errors = {engine: _error_of(engine, "info") for engine in ENGINES}
    working = [engine for engine, error in errors.items() if not error]
    if not working:
        raise EnvironmentMissing(
            "missing container engine, which scoring MBXP requires: model-generated programs run only in containers",
            expected=" or ".join(ENGINES),
            found="; ".join(f"{engine}: {error}" for engine, error in errors.items()),
            hint="start the Docker daemon, or install podman",
        )
    for engine in working:
        if has_image(engine):
            return engine
    raise EnvironmentMissing(
        "missing container image of MBXP",
        expected=IMAGE,
        hint=f"DOCKER_BUILDKIT=1 {working[0]} build --tag {IMAGE} {IMAGE_SOURCE}",
    )


def has_image(engine: str) -> bool:
    """Whether the container engine has the image."""
    return not _error_of(engine, "image", "inspect", IMAGE)


def _error_of(*command: str) -> str:
    """Run a command and return its error message; empty if it succeeded."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_START_S)
    except FileNotFoundError:
        return "not installed"
    except subprocess.TimeoutExpired:
        return f"no answer for {_START_S} s"
    return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1] if done.returncode else ""


def require_languages(run: Run, languages: Collection[Language]) -> None:
    """Check that test programs have their known results: without a language, all of its programs would fail.

    Raises:
        EnvironmentMissing: a language is missing in the image.
        RunFailed: the container ended early.
    """
    wanted = sorted(languages)
    results = run([program for language in wanted for program in canaries(language)])
    verdicts = zip(results[::2], results[1::2], strict=True)
    missing = [language for language, verdict in zip(wanted, verdicts, strict=True) if verdict != (True, False)]
    if missing:
        raise EnvironmentMissing(
            "missing languages in the container image of MBXP",
            where=IMAGE,
            expected=", ".join(wanted),
            found=f"wrong results of test programs in {', '.join(missing)}",
            hint=f"DOCKER_BUILDKIT=1 docker build --no-cache --tag {IMAGE} {IMAGE_SOURCE}",
        )


def run_batch(engine: str, programs: Sequence[Program], stop: threading.Event = NEVER) -> list[bool]:
    """Run programs in one container of `engine`, until `stop` is set.

    Raises:
        RunFailed: the container ended early or exceeded its time limit.
    """
    lines = "".join(json.dumps(program._asdict()) + "\n" for program in programs)
    limit = _START_S + len(programs) * (runner.COMPILE_S + runner.RUN_S)
    with container_name(engine, IMAGE) as name:
        done = run_sandboxed(arguments(engine, name), f"{lines}\n", limit, stop)
    results = done.out.splitlines()
    if done.code or len(results) != len(programs):
        raise RunFailed(
            "container of MBXP ended early",
            expected=f"{len(programs)} results and exit code 0",
            found=f"{len(results)} results and exit code {done.code}; {done.err.strip()[-500:]}",
        )
    return [json.loads(result) for result in results]


@contextlib.contextmanager
def container_name(engine: str, prefix: str) -> Iterator[str]:
    """Yield a container name, and remove the container afterwards, also after an interrupt."""
    name = f"{prefix}-{uuid.uuid4().hex}"
    try:
        yield name
    finally:
        subprocess.run([engine, "rm", "--force", name], capture_output=True, check=False)
