"""Both images as the scripts build them, and commands that are timed."""

import subprocess
import time
from dataclasses import dataclass

from account import Account

IMAGES = {"model_and_dataset": "harness-llm-model_and_dataset:cpu", "submission": "harness-llm-submission:cpu"}
SECRET = "hf_thatNobodyElseMayRead"  # noqa: S105


@dataclass(frozen=True)
class Ended:
    """A command's end, after `seconds`."""

    done: "subprocess.CompletedProcess[str]"
    seconds: float


def timed(account: Account, *command: str, **environment: str) -> Ended:
    """Run a command that must succeed."""
    began = time.monotonic()
    done = account.run(*command, **environment)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return Ended(done, time.monotonic() - began)
