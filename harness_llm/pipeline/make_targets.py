"""Doors that users of other harnesses know: the environment variables of their scripts, the targets of their Makefile.

submission/<benchmark>.sh is AMD's (inference_results_v5.1 closed/Quanta_Cloud_Technology/submission/llama2_70b.sh);
link_dirs, generate_engines and what `make build` clones are NVIDIA's (closed/NVIDIA/Makefile and Makefile.build there).
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness_llm.config.engines import ENGINES, REPLAY
from harness_llm.config.inference_checkout import clone
from harness_llm.config.options import SCENARIOS
from harness_llm.config.request import COMPLIANCE, MEASURED
from harness_llm.errors import ConfigError, EnvironmentMissing, HarnessError
from harness_llm.hardware.gpus import NO_ACCELERATOR, detect_gpu, gpu_count, load_gpus
from harness_llm.hardware.machine import detect
from harness_llm.paths import SCRATCH_VARIABLE, Workspace

VARIABLES = {
    "model": "MODEL",
    "gpu": "GPU_NAME",
    "gpu_count": "GPU_COUNT",
    "round_name": "ROUND",
    "division": "DIVISION",
    "category": "CATEGORY",
    "scenarios": "SCENARIOS",
    "profile": "PROFILE",
    "engine": "ENGINE",
    "company": "COMPANY",
    "system_name": "SYSTEM_NAME",
}
"""Words of the command line, and the variables that say the same; the Makefile's settings are called so too."""
UNUSED = {
    "RESULTS": "each run has a directory of its own below build/logs",
    "ENABLE_POWER_SETUP": "clocks and power limits stay as they are",
}
"""Variables of AMD's scripts that change nothing here."""
SCRATCH = ("data", "models", "preprocessed_data")
ENGINE_BUILDS = {
    "vllm": "it loads the checkpoint as it is, and compiles while it starts",
    "transformers": "PyTorch runs the checkpoint as it is",
    "openai": "the server builds what it needs",
    "llmboost": "the server of its wheel builds what it needs",
    REPLAY: "it computes nothing",
}
"""Why an engine has no step of its own that generates engines."""
_NO_NAME = re.compile(r"\((?:R|TM)\)|\b(?:AMD|Intel|CPU|Processor|\d+-Core)\b|@.*")


def from_environment(words: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """`words` of a command line, completed by what AMD's scripts read of `environment`; what was typed wins.

    Raises:
        ConfigError: a variable has a value that it cannot have, or everything is switched off.
    """
    found: dict[str, Any] = {word: environment.get(name, "") for word, name in VARIABLES.items()}
    found["gpu_count"] = _number("GPU_COUNT", found["gpu_count"])
    found["engine"] = found["engine"] or environment.get("BACKEND", "")
    found["stand_in"] = _is_on("STAND_IN", environment, usual=False)
    found["switches"] = {s: _is_on(s.upper(), environment) for s in SCENARIOS if environment.get(s.upper())}
    found["tests"] = tuple(_tests(environment))
    typed = {word: value for word, value in words.items() if value not in (None, "", False)}
    packed = bool(words.get("packed")) and _is_on("PACKAGE", environment)
    complete = found | typed | {"packed": packed}
    if not (complete["tests"] or packed):
        raise ConfigError("everything is switched off", expected="PERFORMANCE, ACCURACY, COMPLIANCE or PACKAGE = 1")
    complete["system_name"] = complete["system_name"] or _system_name(complete, environment)
    return complete


def unused(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that is set and changes nothing here."""
    return [
        f"{name} is not used: {why}" for name, why in UNUSED.items() if environment.get(name) not in (None, "", "0")
    ]


def _is_on(name: str, environment: Mapping[str, str], *, usual: bool = True) -> bool:
    value = environment.get(name, "")
    if value not in ("", "0", "1"):
        raise ConfigError(f"{name} is a switch", where="environment", expected="1 or 0", found=value)
    return value == "1" if value else usual


def _number(name: str, value: str) -> int | None:
    if value and not (value.isdecimal() and int(value)):
        raise ConfigError(f"{name} is no number of devices", where="environment", expected="1 or more", found=value)
    return int(value) if value else None


def _tests(environment: Mapping[str, str]) -> Iterator[str]:
    return (test for test in (*MEASURED, COMPLIANCE) if _is_on(test.upper(), environment))


def _system_name(words: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    """`8xMI300X_2xEPYC_9554`, of what is said and what is found."""
    machine = detect()
    gpu = words["gpu"] or (None if words["stand_in"] else detect_gpu()) or NO_ACCELERATOR
    count = words["gpu_count"] or (_devices(gpu) if gpu in load_gpus(Workspace()) else None)
    processor = environment.get("CPU_NAME") or short_name(machine.get("host_processor_model_name", ""))
    return system_name(gpu, count, processor, machine.get("host_processors_per_node", "1"))


def _devices(gpu: str) -> int:
    """Those found here; where there are none, those of a usual node."""
    return gpu_count(gpu) or load_gpus(Workspace())[gpu].count


def system_name(gpu: str, count: int | None, processor: str, sockets: str) -> str:
    """The name that AMD's scripts make; without accelerators, that of the processors alone."""
    devices = [f"{count}x{gpu.upper()}" if count else gpu.upper()] if gpu != NO_ACCELERATOR else []
    return "_".join([*devices, f"{sockets}x{processor}"])


def short_name(model: str) -> str:
    """A processor's model name as a part of a folder's: `EPYC_9554` of `AMD EPYC 9554 64-Core Processor`."""
    return "_".join(re.findall(r"[A-Za-z0-9.-]+", _NO_NAME.sub(" ", model))) or NO_ACCELERATOR


def generate_engines(engine: str) -> str:
    """What `make generate_engines` says: no engine here has such a step.

    Raises:
        ConfigError: there is no such engine.
    """
    if engine not in ENGINES:
        raise ConfigError(f"there is no engine {engine}", expected=", ".join(ENGINES))
    return f"{engine} has no engines to generate: {ENGINE_BUILDS[engine]}"


def link_dirs(workspace: Workspace, scratch: str) -> Iterator[str]:
    """Make the folders of a scratch space and show them below build/; yields a sentence for each.

    What stands in build/ already is left alone: with the variable set, models and data are those of the scratch space.

    Raises:
        EnvironmentMissing: a folder cannot be made there.
    """
    if not scratch:
        yield f"{SCRATCH_VARIABLE} is not set: models and data stay below build/"
        return
    for name in SCRATCH:
        folder, link = Path(scratch).resolve() / name, workspace.build / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentMissing(
                "the scratch space cannot be made", where=f"{SCRATCH_VARIABLE}: {folder}", found=str(error.strerror)
            ) from error
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        elif link.is_dir() and not any(link.iterdir()):
            link.rmdir()
        if link.exists():
            yield f"{link} stays as it is, and is not used while {SCRATCH_VARIABLE} is set; its place is {folder}"
        else:
            link.symlink_to(folder)
            yield f"{link} -> {folder}"


def _lines(door: str, workspace: Workspace) -> Iterator[str]:
    if door == "generate_engines":
        yield generate_engines(os.environ.get("ENGINE") or next(iter(ENGINES)))
    elif door == "link_dirs":
        yield from link_dirs(workspace, os.environ.get(SCRATCH_VARIABLE, ""))
    else:
        yield clone(workspace.inference)


def main() -> None:
    """`python -m harness_llm.pipeline.make_targets DOOR`, for the Makefile."""
    parser = argparse.ArgumentParser(description="Targets of other harnesses' Makefiles.")
    parser.add_argument("door", choices=("generate_engines", "link_dirs", "clone_inference"))
    try:
        for line in _lines(parser.parse_args().door, Workspace()):
            sys.stdout.write(f"{line}\n")
    except HarnessError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
