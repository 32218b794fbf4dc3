"""Ends a replica on a node of a cluster with the Ray worker that started it, even one that is stopped.

Run as `python -m harness_llm.fleet.ray_guard MODULE SPEC.json`. The replica watches its lifeline itself, but a process
that is stopped watches nothing, and no pipeline is near to kill it.
"""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from harness_llm.processes import STATUS_VARIABLE, kill_session


def main() -> None:
    """Run the replica; its exit code is ours, 128 and the number of a signal."""
    replica = subprocess.Popen(
        [sys.executable, "-m", *sys.argv[1:]],
        stdin=subprocess.PIPE,
        pass_fds=[int(os.environ[STATUS_VARIABLE])],
        start_new_session=True,
    )
    alone = threading.Event()
    threading.Thread(target=_hold_lifeline, args=(replica.pid, alone), daemon=True).start()
    code = replica.wait()
    kill_session(replica.pid)
    if alone.is_set():
        shutil.rmtree(Path(sys.argv[2]).parent, ignore_errors=True)
    sys.exit(code if code >= 0 else 128 - code)


def _hold_lifeline(replica: int, alone: threading.Event) -> None:
    while os.read(0, 1 << 16):
        pass
    alone.set()
    kill_session(replica)


if __name__ == "__main__":
    main()
