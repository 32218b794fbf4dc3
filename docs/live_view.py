"""Draw docs/images/live-view.svg, the live view of a real run, from the output of a terminal.

script --quiet --command 'harness-llm run …' CAPTURE
python -m docs.live_view CAPTURE     copies one view of CAPTURE to docs/images/live-view.txt and draws the picture
python -m docs.live_view             draws the picture of docs/images/live-view.txt again
"""

import re
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

IMAGES = Path(__file__).resolve().parent / "images"
EXCERPT, PICTURE = IMAGES / "live-view.txt", IMAGES / "live-view.svg"
COMMAND = "$ harness-llm run --model demo --scenarios Server --set harness_config.replicas=2"
WIDTH = 100
_ERASED = re.compile(r"\r?(?:\x1b\[(?:1A|2K|\?25[lh]))+")  # between two views
_DONE = 0.6  # the view of this part of the run


def views(capture: str) -> list[str]:
    """Return the live views of a run in the output of a terminal, in order."""
    found = _ERASED.split(capture.replace("\r\n", "\n"))
    return [view.strip("\n") for view in found if "tokens/s" in view and " elapsed, " in view.partition("\n")[0]]


def draw(view: str) -> str:
    """Return the SVG of a terminal that shows `view`; it loads no font from the network."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    console.print(Text(COMMAND, style="bold"))
    console.print(Text.from_ansi(view))
    svg = console.export_svg(title="harness-llm run", unique_id="live-view")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    """Write the view, if a capture is named, and the picture."""
    if sys.argv[1:]:
        found = views(Path(sys.argv[1]).read_text(errors="replace"))
        EXCERPT.write_text(f"{found[int(len(found) * _DONE)]}\n")
    PICTURE.write_text(draw(EXCERPT.read_text().rstrip("\n")))


if __name__ == "__main__":
    main()
