"""Download a checkpoint: `HUGGINGFACE_ACCESS_TOKEN=hf_... python setup/download_model.py [--model NAME]`."""

import argparse
import os
from pathlib import Path


def main() -> None:
    """Run `harness-llm download`; the default model is llama2-70b, as in other harnesses' script of this name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="llama2-70b", help="a folder of models/; default: %(default)s")
    parser.add_argument("--model_dir", help="folder for checkpoints; default: LAB_MODEL, or build/models")
    arguments = parser.parse_args()
    if arguments.model_dir:
        os.environ["LAB_MODEL"] = arguments.model_dir
    script = Path(__file__).with_name("harness_llm.sh")
    os.execv("/bin/sh", ["sh", str(script), "download", "--model", arguments.model, "--part", "model"])  # noqa: S606 (replaces this process)


if __name__ == "__main__":
    main()
