import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness_llm.errors import EnvironmentMissing
from harness_llm.hardware.device_lock import hold

pytestmark = pytest.mark.processes

HOLD = """
import sys, time
from pathlib import Path
from harness_llm.hardware.device_lock import hold
with hold("cpu", "harness-llm submit --model demo", Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_process_is_refused_with_the_first_ones_command(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as first:
        assert first.stdout
        assert first.stdout.readline() == b"held\n"
        with (
            pytest.raises(EnvironmentMissing, match="another harness-llm process uses cpu") as caught,
            hold("cpu", "second", tmp_path),
        ):
            pass
        with hold("gpu", "on other devices", tmp_path):
            pass
        first.kill()
    assert caught.value.exit_code == 3
    assert caught.value.found == f"process {first.pid}: harness-llm submit --model demo"
    assert caught.value.where == str(tmp_path / "cpu.lock")
    assert "wait for it" in caught.value.hint
    with hold("cpu", "third", tmp_path):  # the kernel releases the lock of a killed process
        assert (tmp_path / "cpu.lock").read_text() == f"process {os.getpid()}: third\n"


def test_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold("cpu", "first, with a long command line", tmp_path):
        raise ZeroDivisionError
    with hold("cpu", "second", tmp_path):
        assert (tmp_path / "cpu.lock").read_text() == f"process {os.getpid()}: second\n"
