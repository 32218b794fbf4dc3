"""Copy published results into tests/data/golden without unused values: `python tests/trim_golden.py SOURCE`."""

import json
import shutil
import sys
from pathlib import Path

TARGET = Path(__file__).with_name("data") / "golden"
FIRST = 10
"""Number of samples and answers that remain of long lists."""
MARK = ":::MLLOG "


def trimmed_log(text: str) -> str:
    """LoadGen's detail log with the first samples of the loaded set and the last of LoadGen's own commits."""
    return "".join(
        _trimmed(line) if "loaded_qsl_set" in line or "git_log" in line else line for line in text.splitlines(True)
    )


def _trimmed(line: str) -> str:
    message = json.loads(line.removeprefix(MARK))
    value = message["value"]
    message["value"] = value.partition("\n")[0] if isinstance(value, str) else value[:FIRST]
    return f"{MARK}{json.dumps(message)}\n"


def trimmed_answers(text: str) -> str:
    """The first answers of a TEST06 log, each of which is one line."""
    first, *lines = text.rstrip("\n]").splitlines()
    return "\n".join([first, *lines[:FIRST]]).rstrip(",") + "\n]\n"


def main() -> None:
    """Replace the copy by the trees in SOURCE; files of this folder itself are kept."""
    source = Path(sys.argv[1])
    for file in sorted(source.glob("*/**/*")):
        if not file.is_file():
            continue
        target = TARGET / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
        if file.name == "mlperf_log_detail.txt":
            target.write_text(trimmed_log(file.read_text()))
        elif "TEST06" in file.parts and file.name == "mlperf_log_accuracy.json":
            target.write_text(trimmed_answers(file.read_text()))


if __name__ == "__main__":
    main()
