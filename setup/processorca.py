"""Make the OpenOrca files of llama2-70b from 1M-GPT4-Augmented.parquet, with the options of the reference's script."""

import argparse
import sys
from pathlib import Path

from harness_llm.errors import exit_code_of
from harness_llm.prepare.datasets.encoder import load_encoder
from harness_llm.prepare.datasets.openorca import build, read_parquet, write


def main() -> None:
    """Write both files and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset_pq_path", type=Path, required=True, help="1M-GPT4-Augmented.parquet")
    parser.add_argument("--model_dir", type=Path, required=True, help="folder of Llama-2-70b-chat-hf's tokenizer.json")
    parser.add_argument("--seqlen_limit", type=int, default=1024, help="exclusive limit of token ids (%(default)s)")
    parser.add_argument("--export_dir", type=Path, required=True, help="output folder")
    parser.add_argument("--num_total_samples", type=int, default=24576, help="evaluation samples (%(default)s)")
    parser.add_argument("--calibration_subset_size", type=int, default=1000, help="calibration samples (%(default)s)")
    options = parser.parse_args()
    sets = build(
        read_parquet(options.dataset_pq_path),
        load_encoder(options.model_dir / "tokenizer.json"),
        options.seqlen_limit,
        options.num_total_samples,
        options.calibration_subset_size,
    )
    for file in write(options.export_dir, *sets):
        sys.stdout.write(f"{file}\n")


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
