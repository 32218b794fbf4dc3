"""FP8 weights and dynamic FP8 activations: `python -m harness_llm.quantize.fp8 --checkpoint DIR --output DIR`.

Runs in `.venv-quantize`. Needs no calibration data: the scales of activations are computed per token while serving.
"""

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path

from llmcompressor import oneshot
from llmcompressor.modifiers.quantization import QuantizationModifier
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness_llm.checkpoint import QUANTIZATION, checkpoint_digest, write_record
from harness_llm.folders import replacing

SCHEME = "FP8_DYNAMIC"
TARGETS = "Linear"
IGNORED = ["lm_head"]


def quantize(checkpoint: Path, output: Path) -> None:
    """Write the quantized `checkpoint` to `output`, which appears when it is complete; its record is written last."""
    started = time.monotonic()
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype="auto")
    _status(0.3, f"{SCHEME} of {checkpoint.name}")
    oneshot(model=model, recipe=QuantizationModifier(targets=TARGETS, scheme=SCHEME, ignore=IGNORED))
    with replacing(output) as folder:
        model.save_pretrained(folder, save_compressed=True)
        AutoTokenizer.from_pretrained(checkpoint).save_pretrained(folder)
        write_record(
            folder,
            QUANTIZATION,
            recipe={"scheme": SCHEME, "targets": TARGETS, "ignore": IGNORED},
            llmcompressor=version("llmcompressor"),
            source=checkpoint_digest(checkpoint),
            seconds=round(time.monotonic() - started, 1),
        )
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
