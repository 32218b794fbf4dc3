"""Guard of a replica on a Ray node: it kills the replica when the Ray worker that started it has ended.

Run as `python -m harness_llm.replicas.ray.guard MODULE SPEC.json`. A replica watches its lifeline itself, but a stopped
process (SIGSTOP) cannot, and the pipeline runs on another node.
"""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

from harness_llm.protocol.child_processes import STATUS_VARIABLE, kill_session


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
