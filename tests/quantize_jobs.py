"""Program for a quantization tool's environment: run several jobs in one process, because loading a tool takes long.

Usage: python quantize_jobs.py MODULE JOBS.json, MODULE being the tool's module of harness_llm.prepare.quantize.
"""

import importlib
import json
import sys
from pathlib import Path

from harness_llm.prepare.quantize.job import Job


def main() -> None:
    tool = importlib.import_module(f"harness_llm.prepare.quantize.{sys.argv[1]}")
    for facts in json.loads(Path(sys.argv[2]).read_text()):
        job = Job.model_validate(facts)
        job.output.mkdir(parents=True)
        tool.quantize(job, job.output)


if __name__ == "__main__":
    main()
