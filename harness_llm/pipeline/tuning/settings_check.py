"""Check of engine settings by the rules and by the checks of `harness-llm doctor`, before an engine starts."""

import json
from dataclasses import dataclass, replace

from harness_llm.config.plan import load_targets, plan_scenario, with_plans
from harness_llm.config.request import Request
from harness_llm.errors import ConfigError
from harness_llm.pipeline.doctor.check_result import CheckResult, Level
from harness_llm.pipeline.engine_settings.engine_checks import check_by_vllm, check_rules
from harness_llm.pipeline.tuning.search_space import Settings


def with_settings(request: Request, scenario: str, settings: Settings) -> Request:
    """Plan `scenario` alone, with `settings` on top of those of `request`.

    Raises:
        ConfigError: the rules or vLLM's arguments do not allow them.
    """
    sets = (f"{name}={json.dumps(value)}" for name, value in settings.items())
    options = replace(request.options, scenarios=(scenario,), set=(*request.options.set, *sets))
    changed = replace(request, options=options)
    return with_plans(changed, [plan_scenario(scenario, changed, load_targets(changed))])


@dataclass
class SettingsCheck:
    """Refuses settings by the checks that the shipped settings pass."""

    request: Request
    scenario: str

    def __post_init__(self) -> None:
        """Check the shipped settings."""
        self._shipped = {_key(result) for result in self._problems({})}

    def __call__(self, settings: Settings) -> str:
        """Why `settings` are refused; empty if they are not."""
        try:
            found = [result for result in self._problems(settings) if _key(result) not in self._shipped]
        except ConfigError as error:
            return error.line
        return "; ".join(result.found for result in found)

    def _problems(self, settings: Settings) -> list[CheckResult]:
        planned = with_settings(self.request, self.scenario, settings)
        results = [*check_rules(planned), *check_by_vllm(planned)]
        return [result for result in results if result.level is not Level.OK]


def _key(result: CheckResult) -> tuple[str, Level, str]:
    return result.name, result.level, result.where
