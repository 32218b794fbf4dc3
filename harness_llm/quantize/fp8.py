"""FP8 weights and dynamic FP8 activations: `python -m harness_llm.quantize.fp8 --checkpoint DIR --output DIR`.

Runs in `.venv-quantize`. Needs no calibration data: the scales of activations are computed per token while serving.
"""

import argparse
import json
import shutil
import time
from importlib.metadata import version
from pathlib import Path

from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness_llm.checkpoint import checkpoint_digest, checkpoint_files

SCHEME = "FP8_DYNAMIC"
IGNORED = ["lm_head"]
RECORD = "quantization.json"


def quantize(checkpoint: Path, output: Path) -> None:
    """Write the quantized `checkpoint` to `output`, which appears when it is complete; its record is written last."""
    started = time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto")
    _status(0.3, f"{SCHEME} of {checkpoint.name}")
    oneshot(model=model, recipe=QuantizationModifier(targets="Linear", scheme=SCHEME, ignore=IGNORED))
    temporary = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary, save_compressed=True)
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(temporary)
    record = {
        "recipe": {"scheme": SCHEME, "targets": "Linear", "ignore": IGNORED},
        "llmcompressor": version("llmcompressor"),
        "source": checkpoint_digest(checkpoint),
        "files": checkpoint_files(temporary),
        "seconds": round(time.monotonic() - started, 1),
    }
    (temporary / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    shutil.rmtree(output, ignore_errors=True)
    temporary.rename(output)
    _status(1.0, f"{SCHEME} written")


def _status(done: float, text: str) -> None:
    print(json.dumps({"stage": "quantize", "done": done, "text": text}), flush=True)  # noqa: T201


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    quantize(arguments.checkpoint, arguments.output)


if __name__ == "__main__":
    main()
