"""Read /proc and /sys."""

from pathlib import Path


def read(file: Path) -> str:
    """Return the file's content; empty on an error, for example EINVAL for the speed of a link that is down."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
