"""Keeps a server that a replica has started: ends with it, and ends it with the replica.

Run as `python -m harness_llm.engines.keeper COMMAND …`. The server is of this process's session, which is killed as a
whole once the replica is gone: vLLM's engine core outlives its API server otherwise.
"""

import subprocess
import sys

from harness_llm.processes import Parent


def main() -> None:
    """Run the command; its exit code is ours."""
    _parent = Parent()  # held: it owns the lifeline
    sys.exit(subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode)


if __name__ == "__main__":
    main()
