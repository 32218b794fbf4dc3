"""Inferred results of edge systems: runs of one scenario are copied to another (inference_rules.adoc:329-346)."""

from harness_llm.config.commands import typed
from harness_llm.config.options import Options
from harness_llm.config.rules import BenchmarkRules, Round
from harness_llm.errors import ConfigError

_CLAUSE = "inference_rules.adoc:329-346"
_EDGE = "edge"


def refuse_inferred(options: Options, round_: Round, rules: BenchmarkRules) -> None:
    """Check the scenarios that are inferred.

    Raises:
        ConfigError: the category is datacenter, the rules do not allow this inference, the source is not measured, or
            the benchmark has no such scenario.
    """
    own = rules.scenarios[options.category]
    known = (*own.required, *own.optional)
    for target, source in options.inferred:
        for fault, expected in (
            (_EDGE not in options.category.split(","), typed(category=_EDGE)),
            (source not in round_.inferred.get(target, ()), _allowed(round_)),
            (target not in known, ", ".join(known)),
            (source not in options.measured, f"{source} among the scenarios, measured"),
            (target in options.measured, f"{target} measured, or inferred, not both"),
        ):
            if fault:
                raise ConfigError(
                    "this scenario cannot be inferred",
                    where=typed(scenarios=f"{target}={source}"),
                    expected=f"{expected} ({_CLAUSE})",
                    found=f"{options.category}; measured: {', '.join(options.measured) or 'none'}",
                    hint=f"{typed(scenarios=(*options.measured, target))} measures it",
                )


def _allowed(round_: Round) -> str:
    return ", ".join(f"{target}={source}" for target, sources in round_.inferred.items() for source in sources)
