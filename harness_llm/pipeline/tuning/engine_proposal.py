"""Next settings to measure, by Optuna's TPE sampler. A pure function of the finished trials.

The study is rebuilt for every proposal, and the sampler's seed follows from the number of trials: a search that is
continued after an interruption proposes what it would have proposed without one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness_llm.pipeline.tuning.search_space import Parameter, SearchSpace, Settings, Value

if TYPE_CHECKING:
    import optuna

# Proposals at random before TPE has enough trials for a model.
_RANDOM = 8
# Proposals in a row that are refused or known, after which the space counts as exhausted.
_ATTEMPTS = 100

Refusal = Callable[[Settings], str]
"""Why settings cannot be measured; empty if they can."""


@dataclass(frozen=True)
class Scored:
    """The result of measured settings.

    Attributes:
        score: logarithm of the speed relative to the shipped settings; None if the engine failed or refused them.
        pruned: whether a short probe ended the measurement.
    """

    settings: Settings
    score: float | None
    pruned: bool = False


def propose(space: SearchSpace, results: Sequence[Scored], refusal: Refusal) -> Settings | None:
    """Settings that were not measured and are not refused; None if none are found."""
    known = [*results]
    measured = [dict(result.settings) for result in results]
    for _ in range(_ATTEMPTS):
        point = _ask(space, known)
        settings = space.settings(point)
        if settings and settings not in measured and space.fits(point) and not refusal(settings):
            return settings
        known.append(Scored(settings, None))
    return None


def _ask(space: SearchSpace, results: Sequence[Scored]) -> dict[str, Value]:
    import optuna  # noqa: PLC0415 - an optional layer

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(n_startup_trials=_RANDOM, seed=len(results))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    distributions = {one.name: _distribution(one) for one in space.parameters}
    for result in results:
        study.add_trial(_finished(space, result, distributions))
    asked = study.ask(distributions)
    return {one.name: one.values[int(asked.params[one.name])] for one in space.parameters}


def _distribution(parameter: Parameter) -> "optuna.distributions.BaseDistribution":
    """Of the index in `values`: numbers are ordered, other values are not."""
    import optuna  # noqa: PLC0415 - an optional layer

    indices = range(len(parameter.values))
    if parameter.is_ordered:
        return optuna.distributions.IntDistribution(0, len(indices) - 1)
    return optuna.distributions.CategoricalDistribution(list(indices))


def _finished(
    space: SearchSpace, result: Scored, distributions: Mapping[str, "optuna.distributions.BaseDistribution"]
) -> "optuna.trial.FrozenTrial":
    """The trial of `result`; TPE ranks pruned ones below complete ones, and those without a value last."""
    import optuna  # noqa: PLC0415 - an optional layer

    point = space.point(result.settings)
    complete = result.score is not None and not result.pruned
    return optuna.trial.create_trial(
        params={one.name: one.values.index(point[one.name]) for one in space.parameters},
        distributions=dict(distributions),
        value=result.score if complete else None,
        intermediate_values={0: result.score} if result.pruned and result.score is not None else {},
        state=optuna.trial.TrialState.COMPLETE if complete else optuna.trial.TrialState.PRUNED,
    )
