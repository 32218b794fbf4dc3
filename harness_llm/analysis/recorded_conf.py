"""The user.conf of a run, as recorded in run.json."""

import shlex
from itertools import pairwise

from harness_llm.config.device_count import targets_name
from harness_llm.config.plan import STAND_IN
from harness_llm.hardware.gpus import NO_ACCELERATOR
from harness_llm.paths import Workspace
from harness_llm.runs.record import RunRecord


def recorded_conf(record: RunRecord) -> dict[str, str]:
    """The values of the run's user.conf by name, such as `llama2-70b.Server.target_qps`."""
    lines = str(record.run_facts.get("user_conf", "")).splitlines()
    pairs = (line.partition(" = ") for line in lines if " = " in line)
    return {name: value for name, _, value in pairs}


def conf_file(record: RunRecord) -> str:
    """The file with the run's LoadGen targets, by the rule of the recorded command; relative to the checkout."""
    words = shlex.split(record.command)
    following = dict(pairwise(words))
    if "--user-conf" in following:
        return following["--user-conf"]
    gpu, count = following.get("--gpu", "<gpu>"), following.get("--gpu-count")
    if gpu == NO_ACCELERATOR and "--stand-in" in words:
        gpu = STAND_IN
    return f"code/{targets_name(gpu, int(count) if count else None, Workspace())}"
