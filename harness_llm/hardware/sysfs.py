"""Reading /proc and /sys."""

from pathlib import Path


def read(file: Path) -> str:
    """What the kernel says there, or nothing: it answers EINVAL for the speed of a dead link, say."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
