"""Keeps a server that a replica has started: ends with it, and ends it with the replica.

Run as `python -m harness_llm.engines.keeper COMMAND …`. The server is of this process's session, which is killed as a
whole once the replica is gone: vLLM's engine core outlives its API server otherwise. The keeper ends last.
"""

import ctypes
import subprocess
import sys

import psutil

from harness_llm.processes import Parent, at_leave

_PR_SET_CHILD_SUBREAPER = 36
_PATIENCE_S = 4  # less than that of whoever waits for the replica


def _end_server() -> None:
    """Kill whatever the command has started, and wait until it is gone."""
    family = psutil.Process().children(recursive=True)
    for process in family:
        process.kill()
    psutil.wait_procs(family, _PATIENCE_S)


def main() -> None:
    """Run the command; its exit code is ours."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what the server leaves behind stays of our family
    at_leave(_end_server)
    _parent = Parent()  # held: it owns the lifeline
    sys.exit(subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode)


if __name__ == "__main__":
    main()
