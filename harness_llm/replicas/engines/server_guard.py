"""Guard of a server that a replica started: it exits with the server, and ends the server with the replica.

Run as `python -m harness_llm.replicas.engines.server_guard COMMAND …`. The server runs in the guard's session. The
guard kills the whole session when the replica has ended, because vLLM's engine core outlives its API server otherwise.
The guard exits last.
"""

import ctypes
import subprocess
import sys

import psutil

from harness_llm.protocol.child_processes import Parent, at_leave

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
