"""Program: run the real LoadGen with a SUT that answers at once; see real_loadgen.py."""

import array
import json
import sys

import mlperf_loadgen as lg

TOKENS = array.array("i", [5, 2])


def main(folder: str, model: str, scenario: str, samples: str, mode: str = "") -> None:
    settings = lg.TestSettings()
    settings.FromConfig(f"{folder}/user.conf", model, scenario, 1)
    if mode:
        settings.scenario = getattr(lg.TestScenario, scenario)
        settings.mode = getattr(lg.TestMode, mode)
        facts = {"issued": _run(settings, folder, int(samples), stream=scenario != "Offline")}
    else:
        every = {name: getattr(settings, name) for name in dir(settings) if not name.startswith("_")}
        facts = {name: value for name, value in every.items() if isinstance(value, int | float)}
    sys.stdout.write(json.dumps(facts, default=int) + "\n")


def _run(settings, folder: str, samples: int, *, stream: bool) -> int:
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
