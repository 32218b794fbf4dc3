"""The commands score and verify."""

import sys
from pathlib import Path

from rich.console import Console

from harness_llm.config.options import Options
from harness_llm.config.request import Request, check_request, load_request
from harness_llm.errors import ConfigError, GateFailed
from harness_llm.evaluate.accuracy_file import render as render_accuracy
from harness_llm.evaluate.accuracy_file import write as write_accuracy
from harness_llm.evaluate.compliance import TESTS
from harness_llm.evaluate.run_result import gather
from harness_llm.loadgen.logs import ACCURACY
from harness_llm.paths import Workspace
from harness_llm.pipeline.panel import Panel
from harness_llm.pipeline.submit import Pipeline


def score(log_dir: Path, options: Options, output: Path | None) -> None:
    """Score the answers and print accuracy.txt.

    Raises:
        GateFailed: the scores miss the gate of every variant.
    """
    request = check_request(load_request(options, Workspace()))
    pipeline = Pipeline(request, Panel(Console(stderr=True)))
    scorer = pipeline.scorer(pipeline.required_assets())
    scores = scorer.score(log_dir / ACCURACY, "accuracy", request.samples("accuracy"))
    if output:
        write_accuracy(output, scores)
    sys.stdout.write(render_accuracy(scores))
    missed = scorer.missed_gates(scores)
    if all(missed.values()):
        found = "; ".join(f"{name}: {line}" for name, lines in missed.items() for line in lines)
        raise GateFailed("the answers miss the accuracy gate", where=str(log_dir), found=found)


def verify(log_dir: Path, options: Options, output: Path | None) -> None:
    """Verify a compliance test and print the file that the official checker reads.

    Raises:
        ConfigError: the benchmark has several compliance tests, and --test names none.
        GateFailed: the test failed.
    """
    request = check_request(load_request(options, Workspace()))
    test, log = _compliance_test(request), log_dir / ACCURACY

    def scores() -> dict[str, float]:
        pipeline = Pipeline(request, Panel(Console(stderr=True)))
        return pipeline.scorer(pipeline.required_assets()).score(log, test, request.samples(test))

    (scenario,) = request.options.measured
    verdict = TESTS[test](gather(log, scenario, request.benchmark, request.round.compliance[test], scores))
    text = verdict.render()
    if output:
        output.write_text(text)
    sys.stdout.write(text)
    if not verdict.passed:
        raise GateFailed(f"{test} failed", where=str(log_dir), found="; ".join(verdict.failures[:4]))


def _compliance_test(request: Request) -> str:
    """The test that --test names, or the benchmark's only one."""
    own = request.rules.compliance
    named = [test for test in own if test in request.requested_tests]
    if len(named) != 1:
        raise ConfigError(
            f"{request.benchmark.name} has {len(own)} compliance tests in round {request.round.round}",
            expected=f"--test {' or '.join(own)}" if own else "a round or a benchmark that has one",
        )
    return named[0]
