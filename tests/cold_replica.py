"""A process of replay replicas whose first steps are slow, as those of an engine that compiles during a run."""

import time

from harness_llm.replicas import replay_host
from harness_llm.replicas.engines.engine import Step
from harness_llm.replicas.engines.replay import ReplayEngine

SLOW_STEPS = 10
MORE_S = 0.6


class Cold(ReplayEngine):
    """Waits in each of its first steps."""

    cold = SLOW_STEPS

    def step(self) -> Step:
        if self.cold:
            self.cold -= 1
            time.sleep(MORE_S)
        return super().step()


if __name__ == "__main__":
    replay_host.ReplayEngine = Cold  # type: ignore[misc]
    replay_host.main()
