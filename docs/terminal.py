"""Draw docs/images/submission.svg, the picture of the terminal in README.md, from the output of a real run.

python -m docs.terminal RUN_LOG     shortens RUN_LOG to docs/images/submission.txt and draws the picture
python -m docs.terminal             draws the picture of docs/images/submission.txt again
"""

import re
import sys
from io import StringIO
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).resolve().parent / "images"
EXCERPT, PICTURE = IMAGES / "submission.txt", IMAGES / "submission.svg"
COMMAND = '$ make submission COMPANY="Acme" SYSTEM_NAME="my-box"'
WIDTH = 118
STYLES = {
    r"^\$ .*": "bold",
    r"\bVALID\b": "bold green",
    r"\b(INVALID|FAILED|DEGRADED)\b": "bold red",
    r"^(Offline|Server) \w+(?=:)": "cyan",
    r"^\d+ errors?, .*": "bold",
    r"^this tree is not submittable.*": "yellow",
    r"^submission/\S+": "bold green",
    r"^…$": "dim",
}
_PLAN = re.compile(r"^  \S")  # the first line of the plan is indented
_PROGRESS = re.compile(r"^([\w ]+): .*(\(\d+%\)|, \d+:\d\d left, .*)$")
_NOISE = re.compile(r"^(replica-\d+|starting for |data set$|train$|quantize$|reference$)|: \d+ samples, about ")
_DETAILS = re.compile(r", \d+ replicas?: .*")  # of the current run
_VERDICT = re.compile(r"^\w+ TEST\d\d: ")
_END = re.compile(r"^\d+ errors?, |not submittable|^submission/inference_results_\S+$")
_CHECKOUT = re.compile(r"^\S*/(?=submission/inference_results_)")  # a folder of the machine of the run


def excerpt(log: str) -> str:
    """Return the output of a run without set-up, repeated progress and the findings of the check."""
    lines = [_DETAILS.sub(", …", _CHECKOUT.sub("", line.rstrip())) for line in log.splitlines() if line.strip()]
    begin = next(number for number, line in enumerate(lines) if _PLAN.match(line))
    end = max(number for number, line in enumerate(lines) if _VERDICT.match(line))
    body = [line for line in lines[begin : end + 1] if not _NOISE.search(line)]
    steps = [list(group) for _, group in groupby(body, _step)]
    shown = [step[len(step) // 2] if " left, " in step[0] else step[-1] for step in steps]
    shown = [line for line in shown if " left, " not in line or line.startswith("Server performance")]
    tail = [line for line in lines[end + 1 :] if _END.search(line)]
    return "\n".join([COMMAND, "…", *shown, "…", *tail]) + "\n"


def _step(line: str) -> str:
    """Return what is the same in all lines of one step."""
    match = _PROGRESS.match(line)
    return match[1] if match else line


def draw(text: str) -> str:
    """Return the SVG of a terminal that shows `text`; it loads no font from the network."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for line in text.splitlines():
        styled = Text(line)
        for pattern, style in STYLES.items():
            styled.highlight_regex(pattern, style)
        console.print(styled)
    svg = console.export_svg(title="make submission", unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    """Write the excerpt, if a log is named, and the picture."""
    if sys.argv[1:]:
        EXCERPT.write_text(excerpt(Path(sys.argv[1]).read_text()))
    PICTURE.write_text(draw(EXCERPT.read_text()))


if __name__ == "__main__":
    main()
