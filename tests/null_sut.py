"""The real LoadGen, in a process of its own as it reads one configuration per process; answers come at once."""

import array
import json
import subprocess
import sys
from pathlib import Path

TOKENS = array.array("i", [5, 2])


def real_settings(folder: Path, user_conf: str, model: str, scenario: str) -> dict[str, int | float]:
    """The numbers in TestSettings once LoadGen has read `user_conf`."""
    return _ask(folder, user_conf, model, scenario, "settings")


def real_issued(folder: Path, user_conf: str, model: str, scenario: str, *, samples: int, test: str) -> int:
    """How many samples LoadGen issues in `test` over a data set of `samples`."""
    mode = {"performance": "PerformanceOnly", "accuracy": "AccuracyOnly"}[test]
    return _ask(folder, user_conf, model, scenario, str(samples), mode)["issued"]


def _ask(folder: Path, user_conf: str, *arguments: str) -> dict:
    (folder / "user.conf").write_text(user_conf)
    command = [sys.executable, __file__, str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(folder: str, model: str, scenario: str, samples: str, mode: str = "") -> None:
    import mlperf_loadgen as lg  # noqa: PLC0415 - one that is missing skips a test

    settings = lg.TestSettings()
    settings.FromConfig(f"{folder}/user.conf", model, scenario, 1)
    if mode:
        settings.scenario = getattr(lg.TestScenario, scenario)
        settings.mode = getattr(lg.TestMode, mode)
        facts = {"issued": _run(lg, settings, folder, int(samples), stream=scenario != "Offline")}
    else:
        every = {name: getattr(settings, name) for name in dir(settings) if not name.startswith("_")}
        facts = {name: value for name, value in every.items() if isinstance(value, int | float)}
    sys.stdout.write(json.dumps(facts, default=int) + "\n")


def _run(lg, settings, folder: str, samples: int, *, stream: bool) -> int:
    address, _ = TOKENS.buffer_info()
    issued = 0

    def answer(queries) -> None:
        nonlocal issued
        issued += len(queries)
        size = len(TOKENS) * TOKENS.itemsize
        responses = [lg.QuerySampleResponse(query.id, address, size, len(TOKENS)) for query in queries]
        if stream:
            lg.FirstTokenComplete(responses)
        lg.QuerySamplesComplete(responses)

    log = lg.LogSettings()
    log.log_output.outdir = folder
    log.enable_trace = False
    sut = lg.ConstructSUT(answer, lambda: None)
    library = lg.ConstructQSL(samples, samples, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(sut, library, settings, log, f"{folder}/no-audit.config")
    return issued


if __name__ == "__main__":
    main(*sys.argv[1:])
