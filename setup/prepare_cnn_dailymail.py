"""Make the CNN/DailyMail files of gptj and llama3.1-8b from the parquet files of cnn_dailymail 3.0.0."""

import argparse
import sys
from pathlib import Path

from harness_llm.errors import exit_code_of
from harness_llm.prepare.datasets.cnn_dailymail import write_calibration, write_evaluation
from harness_llm.prepare.datasets.encoder import load_encoder


def main() -> None:
    """Write the files and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--dataset-dir", type=Path, required=True, help="folder of validation-*.parquet, train-*.parquet"
    )
    parser.add_argument("--model-dir", type=Path, help="folder of Llama-3.1-8B's tokenizer.json; omit for gptj")
    parser.add_argument("--n-samples", type=int, help="number of shuffled samples; 5000 for llama3.1-8b-edge")
    parser.add_argument("--calibration-list-file", type=Path, help="calibration/CNNDailyMail/calibration-list.txt")
    parser.add_argument("--output-dir", type=Path, required=True, help="output folder")
    options = parser.parse_args()
    encode = load_encoder(options.model_dir / "tokenizer.json") if options.model_dir else None
    files = [write_evaluation(options.dataset_dir, options.output_dir, encode, options.n_samples)]
    if options.calibration_list_file:
        listed = options.calibration_list_file
        files.append(write_calibration(options.dataset_dir, listed, options.output_dir, encode))
    sys.stdout.write("".join(f"{file}\n" for file in files))


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
