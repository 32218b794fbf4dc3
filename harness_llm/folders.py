"""Folders that appear complete or not at all. Standard library only: quantization environments import it too."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

READABLE = 0o644


@contextmanager
def replacing(output: Path) -> Iterator[Path]:
    """A fresh folder beside `output` that takes its place when the block ends well."""
    temporary = output.with_name(f"{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            file.chmod(READABLE)  # safetensors writes for the owner alone; containers run as someone else
        shutil.rmtree(output, ignore_errors=True)
        temporary.rename(output)
    except BaseException:  # Ctrl-C too: nothing half-written stays
        shutil.rmtree(temporary, ignore_errors=True)
        raise
