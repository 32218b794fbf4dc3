"""Whether a replica that has ended is started again. Pure."""

from collections.abc import Sequence

ATTEMPTS = 3
SHORT_S = 20.0


def worth_another(lives: Sequence[float]) -> bool:
    """Whether to start a replica again after `lives`, seconds each from ready to its end; 0 where it never was ready.

    What ended now and then may go on; what ended `ATTEMPTS` times in a row within `SHORT_S` will do so again.
    """
    return len(lives) < ATTEMPTS or any(life >= SHORT_S for life in lives[-ATTEMPTS:])
