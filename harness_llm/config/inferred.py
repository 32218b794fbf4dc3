"""Results of edge systems that are inferred: runs of one scenario stand for another (inference_rules.adoc:329-346)."""

from harness_llm.config.options import Choices
from harness_llm.errors import ConfigError
from harness_llm.rules import BenchmarkRules, Round

_CLAUSE = "inference_rules.adoc:329-346"
_EDGE = "edge"


def refuse_inferred(choices: Choices, round_: Round, rules: BenchmarkRules) -> None:
    """Raise where a scenario may not be inferred.

    Raises:
        ConfigError: the system is of the datacenter, the rules do not infer this scenario from that one, the source is
            not measured, or the benchmark has no such scenario.
    """
    own = rules.scenarios[choices.category]
    known = (*own.required, *own.optional)
    for target, source in choices.inferred:
        for fault, expected in (
            (_EDGE not in choices.category.split(","), "--category edge"),
            (source not in round_.inferred.get(target, ()), _allowed(round_)),
            (target not in known, ", ".join(known)),
            (source not in choices.scenarios, f"{source} among the scenarios, measured"),
            (target in choices.scenarios, f"{target} measured, or inferred, not both"),
        ):
            if fault:
                raise ConfigError(
                    "this scenario cannot be inferred",
                    where=f"--scenarios {target}={source}",
                    expected=f"{expected} ({_CLAUSE})",
                    found=f"{choices.category}; measured: {', '.join(choices.scenarios) or 'none'}",
                    hint=f"--scenarios {','.join((*choices.scenarios, target))} measures it",
                )


def _allowed(round_: Round) -> str:
    return ", ".join(f"{target}={source}" for target, sources in round_.inferred.items() for source in sources)
