"""LoadGen alone, with a SUT in its process that answers immediately: the baseline of the harness's overhead.

Run as `python -m benchmarks.null_sut SPEC.json`, with LoadGen first on the Python path.
"""

import array
import sys
from pathlib import Path

import mlperf_loadgen as lg
import msgspec

from benchmarks.replayed import NullSpec


def main() -> None:
    """Run Server once."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=NullSpec)
    settings = lg.TestSettings()
    settings.FromConfig(spec.user_conf, spec.model, "Server", 1)
    settings.scenario = lg.TestScenario.Server
    settings.mode = lg.TestMode.PerformanceOnly
    answer = array.array("i", [5] * spec.tokens)
    address, size = answer.buffer_info()[0], len(answer) * answer.itemsize

    def issue(queries: list[int], _: list[int]) -> None:
        lg.FirstTokenComplete([lg.QuerySampleResponse(query, address, answer.itemsize, 1) for query in queries])
        lg.QuerySamplesComplete([lg.QuerySampleResponse(query, address, size, spec.tokens) for query in queries])

    log = lg.LogSettings()
    log.log_output.outdir = spec.output
    log.enable_trace = False
    sut = lg.ConstructFastSUT(issue, lambda: None)
    library = lg.ConstructQSL(spec.samples, spec.samples, lambda _: None, lambda _: None)
    lg.StartTestWithLogSettings(sut, library, settings, log, f"{spec.output}/no-audit.config")


if __name__ == "__main__":
    main()
