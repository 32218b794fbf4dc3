"""accuracy.txt and verdicts of a result: from the official scripts if they can run, else from harness-llm."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness_llm.config.assets import Assets
from harness_llm.config.submission_names import Submission
from harness_llm.evaluate.accuracy_file import ACCURACY as SCORES
from harness_llm.evaluate.official.accuracy_script import score_officially
from harness_llm.evaluate.official.output import OfficialOutput
from harness_llm.evaluate.official.verdict_script import verify_officially
from harness_llm.loadgen.logs import ACCURACY as ANSWERS
from harness_llm.runs.record import Run

Outputs = Mapping[Path, OfficialOutput]
"""Output to package, by the directory of the run."""

_SCORED_TESTS = ("TEST07",)
"""Compliance tests whose script calls the accuracy script."""


def official_outputs(submission: Submission, runs: Iterable[Run], assets: Assets) -> dict[Path, OfficialOutput]:
    """Run the official scripts on the logs of accuracy and compliance runs.

    Runs without accuracy.txt or verdict are left out; `build_tree` refuses them.

    Raises:
        GateFailed: scores or verdict of a script differ from those of harness-llm.
        RunFailed: a script failed.
    """
    verdicts = {test: facts.verdict for test, facts in submission.rules.compliance.items()}
    outputs = {}
    for run in runs:
        own = run.path / verdicts.get(run.run_key.test, SCORES)
        if not own.is_file() or run.run_key.test not in ("accuracy", *verdicts):
            continue
        outputs[run.path] = (_verdict if run.run_key.test in verdicts else _scores)(submission, run, assets)
    return outputs


def _scores(submission: Submission, run: Run, assets: Assets) -> OfficialOutput:
    gated = {metric for rules in submission.variants.values() for metric in rules.gates}
    own = (run.path / SCORES).read_text()
    return score_officially(submission.benchmark, assets, run.path / ANSWERS, own, gated=gated)


def _verdict(submission: Submission, run: Run, assets: Assets) -> OfficialOutput:
    benchmark, test = submission.benchmark, run.run_key.test
    scored = None
    if test in _SCORED_TESTS:
        scored = score_officially(benchmark, assets, run.path / ANSWERS, "", test=test)
    return verify_officially(
        test, submission.rules.compliance[test], benchmark, run.run_key.scenario, run.path, scored=scored
    )


def own_notices(runs: Iterable[Run], outputs: Outputs) -> list[str]:
    """One sentence for each reason why an official script was not used."""
    places: dict[str, list[str]] = {}
    for run in runs:
        if (output := outputs.get(run.path)) and output.reason:
            places.setdefault(output.reason, []).append(f"{run.run_key.scenario} {run.run_key.test}")
    return [
        f"computed by harness-llm, not by the official script, for {', '.join(names)}: {reason}"
        for reason, names in places.items()
    ]
