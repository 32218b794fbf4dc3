"""A replica whose engine requests more memory than there is, once the file in HUNGRY exists."""

import os
from pathlib import Path
from typing import Any

from harness_llm.replicas import replica
from harness_llm.replicas.engines.engine import Step

VARIABLE = "HUNGRY"
MORE_THAN_THERE_IS = 1 << 46
build_engine = replica.build_engine


class Hungry:
    """An engine around another."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._file = Path(os.environ[VARIABLE])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def step(self) -> Step:
        if self._file.exists():
            self._file.unlink()  # the restarted replica works
            bytearray(MORE_THAN_THERE_IS)
        return self._engine.step()


if __name__ == "__main__":
    replica.build_engine = lambda *arguments, **named: Hungry(build_engine(*arguments, **named))
    replica.main()
