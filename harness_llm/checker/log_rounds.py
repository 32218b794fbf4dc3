"""The rounds that a LoadGen log belongs to."""

from typing import NamedTuple

from harness_llm.config.rules.rounds import load_round, round_names
from harness_llm.loadgen.logs import DetailLog


class LogRounds(NamedTuple):
    """Rounds of a log; `what` is the part of the log that determines them. None if no round has that part."""

    what: str
    names: tuple[str, ...]


def rounds_of_log(detail: DetailLog) -> LogRounds:
    """The round with the seeds of the log; if no round has them, the rounds with its LoadGen version.

    Raises:
        ConfigError: the log has no seeds or no version.
    """
    loadgen = {name: load_round(name).loadgen for name in round_names()}
    seeds, version = detail.seeds, detail.loadgen_version
    if own := tuple(name for name, rules in loadgen.items() if rules.seeds == seeds):
        return LogRounds(f"seeds of {' and '.join(own)}", own)
    return LogRounds(f"LoadGen {version}", tuple(name for name, rules in loadgen.items() if version in rules.versions))
