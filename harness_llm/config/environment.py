"""Options from environment variables, as AMD's scripts set them.

submission/<benchmark>.sh replaces inference_results_v5.1 closed/Quanta_Cloud_Technology/submission/llama2_70b.sh.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from harness_llm.config.options import COMPLIANCE, MEASURED, SCENARIOS, Options, declared_options, split_names
from harness_llm.errors import ConfigError
from harness_llm.hardware.gpus import NO_ACCELERATOR, detect_gpu, gpu_count, load_gpus
from harness_llm.hardware.machine import detect
from harness_llm.paths import Workspace

VARIABLES = {name: declared.variable for name, (_, declared) in declared_options().items() if declared.variable}
"""The environment variable of each field of `Options`; a setting of make has the same name."""
UNUSED = {
    "RESULTS": "each run has a directory of its own below build/logs",
    "ENABLE_POWER_SETUP": "clocks and power limits are not changed",
}
"""Variables of AMD's scripts that have no effect."""
_NO_NAME = re.compile(r"\((?:R|TM)\)|\b(?:AMD|Intel|CPU|Processor|\d+-Core)\b|@.*")


def from_environment(options: Options, environment: Mapping[str, str]) -> Options:
    """Fill options that are not set from the variables of AMD's scripts.

    Raises:
        ConfigError: a variable has an invalid value, or there is nothing to run and to package.
    """

    def text(name: str) -> str:
        return getattr(options, name) or environment.get(VARIABLES[name], "")

    filled = replace(
        options,
        environment=False,
        model=text("model"),
        scenarios=options.scenarios or split_names(environment.get("SCENARIOS", "")),
        tests=options.tests or tuple(_tests(environment)),
        profile=text("profile"),
        round=text("round"),
        division=text("division"),
        category=text("category"),
        again=options.again or _switch("AGAIN", environment, default=False),
        stand_in=options.stand_in or _switch("STAND_IN", environment, default=False),
        company=text("company"),
        system_name=text("system_name"),
        gpu=text("gpu"),
        gpu_count=options.gpu_count or _count("GPU_COUNT", environment),
        engine=text("engine") or environment.get("BACKEND", ""),
        package=options.package and _switch("PACKAGE", environment),
        scenario_switches=tuple((s, _switch(s.upper(), environment)) for s in SCENARIOS if environment.get(s.upper())),
    )
    if not (filled.tests or filled.package):
        raise ConfigError(
            "no test and no packaging is requested", expected="PERFORMANCE, ACCURACY, COMPLIANCE or PACKAGE = 1"
        )
    return replace(filled, system_name=filled.system_name or _system_name(filled, environment))


def unused_variables(environment: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that is set and has no effect."""
    found = [name for name in UNUSED if environment.get(name) not in (None, "", "0")]
    return [f"{name} is not used: {UNUSED[name]}" for name in found]


def _switch(name: str, environment: Mapping[str, str], *, default: bool = True) -> bool:
    value = environment.get(name, "")
    if value not in ("", "0", "1"):
        raise ConfigError(f"invalid {name}", where="environment", expected="1 or 0", found=value)
    return value == "1" if value else default


def _count(name: str, environment: Mapping[str, str]) -> int | None:
    value = environment.get(name, "")
    if value and not (value.isdecimal() and int(value)):
        raise ConfigError(f"invalid {name}", where="environment", expected="1 or more", found=value)
    return int(value) if value else None


def _tests(environment: Mapping[str, str]) -> Iterator[str]:
    return (test for test in (*MEASURED, COMPLIANCE) if _switch(test.upper(), environment))


def _system_name(options: Options, environment: Mapping[str, str]) -> str:
    """The system's name, such as `8xMI300X_2xEPYC_9554`, from options and detected hardware."""
    machine = detect()
    gpu = options.gpu or (None if options.stand_in else detect_gpu()) or NO_ACCELERATOR
    kinds = load_gpus(Workspace())
    # Without accelerators here: the number of a usual node.
    count = options.gpu_count or (gpu_count(gpu) or kinds[gpu].count if gpu in kinds else None)
    processor = environment.get("CPU_NAME") or short_name(machine.get("host_processor_model_name", ""))
    return system_name(gpu, count, processor, machine.get("host_processors_per_node", "1"))


def system_name(gpu: str, count: int | None, processor: str, sockets: str) -> str:
    """The name that AMD's scripts give a system; without accelerators, only its processors."""
    devices = [f"{count}x{gpu.upper()}" if count else gpu.upper()] if gpu != NO_ACCELERATOR else []
    return "_".join([*devices, f"{sockets}x{processor}"])


def short_name(model: str) -> str:
    """A processor's model name as part of a folder name: `EPYC_9554` for `AMD EPYC 9554 64-Core Processor`."""
    return "_".join(re.findall(r"[A-Za-z0-9.-]+", _NO_NAME.sub(" ", model))) or NO_ACCELERATOR
