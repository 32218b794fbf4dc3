"""Changes that each break one rule of check in a published tree, with what check and the official checker then find."""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trees import ACCURACY, PERFORMANCE, SCORES_FILE, rename, sparse, write, write_json

from harness_llm.rules import load_round
from harness_llm.submission.places import PROFILE

# v6.0, MangoBoost, closed
HOME = "closed/MangoBoost"
NAME = "8xMI300X_2xEPYC_9534"
SYSTEM = f"{HOME}/systems/{NAME}.json"
RESULTS = f"{HOME}/results/{NAME}"
BENCHMARK = f"{RESULTS}/llama2-70b-99.9"
OFFLINE, SERVER = f"{BENCHMARK}/Offline", f"{BENCHMARK}/Server"
SERVER_LOG, SERVER_ACCURACY = f"{SERVER}/{PERFORMANCE}", f"{SERVER}/{ACCURACY}"
SCORES = f"{OFFLINE}/{SCORES_FILE}"
TRUNCATED = f"{OFFLINE}/accuracy/mlperf_log_accuracy.json"
VERDICT = f"{SERVER}/TEST06/verify_accuracy.txt"
ANSWERS = f"{SERVER}/TEST06/accuracy/mlperf_log_accuracy.json"
# the same, as a result of gpt-oss-120b; and in the network division
GPT_OSS = f"{RESULTS}/gpt-oss-120b/Offline"
TEST07, TEST09 = f"{GPT_OSS}/TEST07", f"{GPT_OSS}/TEST09"
NETWORK = "network/MangoBoost"
# the same with a power measurement of the Server run
POWER = f"{SERVER}/performance/power"
# v5.1, AMD, closed
AMD = "closed/AMD"
AMD_RESULT = "8xMI300X_2xEPYC_9575F/llama2-70b-99.9/Interactive"
AMD_FILES = f"{AMD}/measurements/{AMD_RESULT}"
AMD_TEST = f"{AMD}/compliance/{AMD_RESULT}/TEST06"
AMD_LOG = f"{AMD}/results/{AMD_RESULT}/{PERFORMANCE}"
# v6.0-wrong-seeds, NVIDIA, open
NVIDIA = "open/NVIDIA"
EDGE = f"{NVIDIA}/results/Jetson-Thor_TRT/llama3.1-8b-edge"

ARCHITECTURE = "documentation/system_architecture.md"
OK, BAD = (0, 0), (1, 1)
"""The official checker's exit codes, plain and with --submission-exceptions."""

Break = Callable[[Path], object]


def fields(**values: object) -> Break:
    """Change fields of a JSON object; None removes one."""

    def change(path: Path) -> None:
        document = json.loads(path.read_text()) | values
        write_json(path, {name: value for name, value in document.items() if value is not None})

    return change


def logged(**values: object) -> Break:
    """Change what LoadGen logged; `__` stands for a point."""
    wanted = {name.replace("__", "."): value for name, value in values.items()}

    def change(path: Path) -> None:
        messages = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
        assert wanted.keys() <= {message["key"] for message in messages}
        changed = [message | {"value": wanted.get(message["key"], message["value"])} for message in messages]
        path.write_text("".join(f":::MLLOG {json.dumps(message)}\n" for message in changed))

    return change


def error(message: str = "queue overrun") -> Break:
    return appended("error_runtime", message, is_error=True)


def appended(key: str, value: object, *, is_error: bool = False) -> Break:
    line = {"key": key, "value": value, "metadata": {"is_error": is_error, "is_warning": False}}
    return lambda path: path.write_text(f"{path.read_text()}:::MLLOG {json.dumps(line)}\n")


def words(old: str, new: str) -> Break:
    def change(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


def emptied(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def text(content: str) -> Break:
    return lambda path: write(path, content)


def size(count: int) -> Break:
    return lambda path: sparse(path, count)


def answer(**values: object) -> Break:
    """Change the first answer of an accuracy log."""

    def change(path: Path) -> None:
        first, *others = json.loads(path.read_text())
        write_json(path, [first | values, *others])

    return change


def described(tree: Path, home: str) -> None:
    """The published trees come without most of their documents."""
    write(tree / home / ARCHITECTURE, "Two NICs of 400 Gbit/s each.\n")


def gpt_oss(tree: Path) -> None:
    described(tree, HOME)
    shutil.rmtree(tree / SERVER)
    rename(tree / OFFLINE, tree / GPT_OSS)
    rename(tree / GPT_OSS / "TEST06", tree / TEST07)
    shutil.copytree(tree / GPT_OSS / "performance", tree / TEST07 / "performance")
    shutil.copytree(tree / TEST07, tree / TEST09)
    write(tree / TEST07 / "verify_accuracy.txt", "Accuracy score: 61.616\nTEST PASS\n")
    write(tree / TEST09 / "verify_output_len.txt", "Mean output tokens: 1278.2\nTEST PASS\n")
    logged(result_samples_per_second=50, result_tokens_per_second=50 * 1278.2)(tree / TEST09 / PERFORMANCE)


def powered(tree: Path) -> None:
    """With the files of a power measurement, by name alone."""
    described(tree, HOME)
    rules, performance = load_round("v6.0").power, tree / SERVER / "performance"
    shutil.copytree(performance / "run_1", performance / "ranging")
    for folder, files in rules.items():
        for name in files.required:
            if not (performance / folder / name).exists():
                write(performance / folder / name, "as measured\n")
    fields(system_power_capacity="10000")(tree / SYSTEM)


def served(tree: Path) -> None:
    """An open result on an edge system, renamed to one of Server."""
    shutil.rmtree(tree / "closed")
    rename(tree / EDGE / "SingleStream", tree / EDGE / "Server")
    logged(effective_scenario="Server")(tree / EDGE / "Server" / ACCURACY)
    for key in load_round("v6.0").metrics["Server"]:
        appended(key, 9)(tree / EDGE / "Server" / PERFORMANCE)


def network(tree: Path) -> None:
    """LoadGen was told the name that this division asks for."""
    rename(tree / HOME, tree / NETWORK)
    described(tree, NETWORK)
    wired = dict.fromkeys(load_round("v6.0").system.network, "as wired")
    fields(**wired | {"is_network": "true", "division": "network"})(tree / SYSTEM.replace(HOME, NETWORK))


class Base(NamedTuple):
    """What is broken: a published tree, the round that judges it, and what is done to it first."""

    golden: str
    round: str
    prepare: Break


V60 = Base("v6.0", "v6.0", lambda tree: described(tree, HOME))
V51 = Base("v5.1", "v5.1", lambda tree: described(tree, AMD))
OSS = Base("v6.0", "v6.0", gpt_oss)
NET = Base("v6.0", "v6.0", network)
POWERED = Base("v6.0", "v6.0", powered)
POWERED_V61 = Base("v6.0", "v6.1", powered)
SERVED = Base("v6.0-wrong-seeds", "v6.0", served)
OPEN = Base("v6.0-wrong-seeds", "v6.0", lambda tree: shutil.rmtree(tree / "closed"))


class Mutation(NamedTuple):
    """What is done to `place`, and what that adds: `rule` once at each of `at`, which is the place unless given.

    `codes` are what the official checker then says; None where it refuses the tree anyway. They are not OK where the
    finding's authority is the official checker, and OK where it is another.
    """

    rule: str
    place: str
    breaks: Break
    codes: tuple[int, int] | None = None
    base: Base = V60
    at: tuple[str, ...] = ()

    @property
    def adds(self) -> Counter[tuple[str, str]]:
        return Counter((self.rule, place) for place in self.at or (self.place,))


MUTATIONS = [
    # what stands where
    Mutation("tree", "closed", shutil.rmtree, OK, at=(".",)),
    Mutation("results", f"{HOME}/results", shutil.rmtree, BAD, at=(HOME,)),
    Mutation("results", f"{HOME}/results", emptied, OK, at=(HOME,)),
    Mutation("results", f"{NVIDIA}/results", shutil.rmtree, None, OPEN, (NVIDIA,)),
    Mutation("profile", f"{HOME}/{PROFILE}", text("{"), OK),
    Mutation("not-submittable", f"{HOME}/{PROFILE}", text('{"profile": "smoke"}'), OK),
    Mutation("source", f"{HOME}/src", shutil.rmtree, BAD),
    Mutation("source", f"{HOME}/src", emptied, OK),
    Mutation("source", f"{AMD}/code", shutil.rmtree, BAD, V51),
    Mutation("calibration", f"{HOME}/documentation/calibration.md", Path.unlink, OK, at=(HOME,)),
    Mutation("architecture", f"{HOME}/{ARCHITECTURE}", Path.unlink, OK, at=(HOME,)),
    Mutation("model-mapping", f"{NVIDIA}/model_mapping.json", text("{"), None, OPEN),
    Mutation("benchmark", BENCHMARK, lambda p: p.rename(p.with_name("llama2-7b")), BAD, at=(f"{RESULTS}/llama2-7b",)),
    Mutation(
        "scope",
        BENCHMARK,
        lambda p: p.rename(p.with_name("whisper")),
        at=(f"{RESULTS}/whisper/Offline", f"{RESULTS}/whisper/Server"),
    ),
    Mutation(
        "scope",
        SERVER,
        lambda p: (emptied(p), write_json(p / "performance/result_summary.json", {"qps": 1})),
    ),
    Mutation("scenarios", OFFLINE, shutil.rmtree, BAD, at=(BENCHMARK,)),
    Mutation("scenarios", SERVER, shutil.rmtree, BAD, at=(BENCHMARK,)),
    Mutation("scenarios", SYSTEM, fields(system_type="edge"), BAD, at=(BENCHMARK,)),
    Mutation("scenario-name", SERVER, lambda p: p.rename(p.with_name("server")), OK, at=(f"{BENCHMARK}/server",)),
    # power
    Mutation("power", f"{POWER}/server.log", Path.unlink, base=POWERED),
    Mutation("power", f"{POWER}/notes.txt", text("x"), base=POWERED),
    Mutation("power", f"{SERVER}/performance/run_1/spl.txt", Path.unlink, base=POWERED),
    Mutation("power", f"{SERVER}/performance/run_1/stdout.txt", text("x"), base=POWERED),
    Mutation("power", f"{SERVER}/performance/ranging/mlperf_log_summary.txt", Path.unlink, base=POWERED),
    # files
    Mutation("file-name", f"{HOME}/src/a b", text("x"), OK),
    Mutation("file-name", f"{HOME}/.env", text("x"), OK),
    Mutation("symlink", f"{HOME}/link", lambda p: p.symlink_to("src"), OK),
    Mutation("file-size", f"{HOME}/core", size(50 * 2**20 + 1), OK),
    Mutation("summary", f"{SERVER}/accuracy/mlperf_log_summary.txt", Path.unlink, OK),
    Mutation("placeholder", SYSTEM, fields(cooling="<how>"), OK, at=(f"{SYSTEM}:12",)),
    Mutation("placeholder", f"{SERVER}/README.md", text("How:\nTBD"), OK, at=(f"{SERVER}/README.md:2",)),
    # systems
    Mutation("system-file", SYSTEM, Path.unlink, BAD),
    Mutation("system-field", SYSTEM, fields(cooling=None), BAD),
    Mutation("system-field", SYSTEM, fields(accelerators_per_node=0), BAD),
    Mutation("system-number", SYSTEM, fields(number_of_nodes="one"), BAD),
    Mutation("system-status", SYSTEM, fields(status="soon"), BAD),
    Mutation("system-type", SYSTEM, fields(system_type="Datacenter"), BAD),
    Mutation("system-owner", SYSTEM, fields(submitter="Boost"), BAD),
    Mutation("system-owner", SYSTEM, fields(division="open"), BAD),
    Mutation("system-field", SYSTEM.replace(HOME, NETWORK), fields(nic_sut=None), BAD, NET),
    Mutation("system-network", SYSTEM, fields(is_network=False), BAD),
    Mutation("system-network", SYSTEM.replace(HOME, NETWORK), fields(is_network="false"), BAD, NET),
    Mutation("system-cloud", SYSTEM, fields(system_type_detail="Cloud"), OK),
    Mutation("system-power", SYSTEM, fields(system_power_capacity=None), None, POWERED_V61),
    # measurements
    Mutation("measurements-file", f"{SERVER}/measurements.json", Path.unlink, BAD),
    Mutation(
        "measurements-file",
        f"{AMD_FILES}/8xMI300X_2xEPYC_9575F.json",
        Path.unlink,
        BAD,
        V51,
        (f"{AMD_FILES}/8xMI300X_2xEPYC_9575F_Interactive.json",),
    ),
    Mutation("measurements-field", f"{SERVER}/measurements.json", fields(retraining=""), BAD),
    Mutation("measurements-field", f"{AMD_FILES}/8xMI300X_2xEPYC_9575F.json", fields(retraining=None), BAD, V51),
    Mutation("measurements-beside", f"{SERVER}/README.md", Path.unlink, BAD),
    Mutation("measurements-beside", f"{AMD_FILES}/user.conf", text(""), BAD, V51),
    Mutation("user-conf", f"{SERVER}/user.conf", words("qps = 88", "qps=88"), OK, at=(f"{SERVER}/user.conf:8",)),
    Mutation("user-conf-closed", f"{SERVER}/user.conf", words("Server.min_query_count", "Server.ttft_latency"), OK),
    # accuracy
    Mutation("accuracy-file", SCORES, Path.unlink, BAD),
    Mutation("accuracy-hash", SCORES, words("hash=", "sha256="), BAD),
    Mutation("accuracy-log", TRUNCATED, Path.unlink, BAD),
    Mutation("accuracy-log", TRUNCATED, size(10241), BAD),
    Mutation("accuracy-metric", SCORES, words("44.4213", "np.float64(44.4213)"), BAD),
    Mutation("accuracy-gate", SCORES, words("44.4213", "44.3867"), BAD),
    Mutation("accuracy-gate", SCORES, words("296.1", "323.9"), BAD),
    Mutation("accuracy-samples", SERVER_ACCURACY, logged(effective_accuracy_sample_count=24575), BAD),
    # logs
    Mutation("log", SERVER_LOG, Path.unlink, BAD),
    Mutation("log", SERVER_ACCURACY, text(":::MLLOG {"), BAD, at=(f"{SERVER_ACCURACY}:1",)),
    Mutation("log-mode", SERVER_LOG, logged(effective_test_mode="AccuracyOnly"), OK),
    Mutation("log-scenario", SERVER_ACCURACY, logged(effective_scenario="Offline"), OK),
    Mutation("loadgen-errors", SERVER_LOG, error(), (0, 1)),
    Mutation("loadgen-errors", SERVER_LOG, error("Loadgen built with uncommitted changes!"), OK),
    Mutation("loadgen-errors", SERVER_ACCURACY, error(), BAD),
    Mutation("loadgen-errors", SERVER_ACCURACY, error("Loadgen built with uncommitted changes!"), (1, 0)),
    Mutation("loadgen-version", SERVER_LOG, logged(loadgen_version="5.1.0 @ 091d51f041"), OK),
    Mutation("loadgen-valid", SERVER_LOG, logged(result_validity="INVALID"), OK),
    Mutation("early-stopping", SERVER_LOG, logged(early_stopping_met=False), BAD),
    Mutation("seeds", SERVER_LOG, logged(effective_qsl_rng_seed=1), BAD),
    Mutation("seeds", SERVER_LOG, logged(effective_sample_index_rng_seed=1), BAD),
    Mutation("seeds", SERVER_LOG, logged(effective_schedule_rng_seed=1), BAD),
    Mutation("min-duration", SERVER_LOG, logged(effective_min_duration_ms=599_999), BAD),
    Mutation("token-latencies", SERVER_LOG, logged(requested_use_token_latencies=False), BAD),
    Mutation("metric", SERVER_LOG, logged(result_completed_tokens_per_second=None), BAD),
    Mutation("metric", SERVER_LOG, logged(result_completed_tokens_per_second=0), BAD),
    Mutation("metric", f"{OFFLINE}/{PERFORMANCE}", logged(result_samples_per_second=None), BAD),
    Mutation("min-query-count", f"{OFFLINE}/{PERFORMANCE}", logged(effective_min_query_count=0), BAD),
    Mutation("equal-issue", SERVER_LOG, logged(effective_sample_concatenate_permutation=False), OK),
    Mutation("network-sut", SERVER_LOG.replace(HOME, NETWORK), logged(sut_name="PySUT"), BAD, NET),
    Mutation("performance-samples", SERVER_LOG, logged(effective_performance_sample_count=24575), BAD),
    Mutation("samples-per-query", f"{OFFLINE}/{PERFORMANCE}", logged(effective_samples_per_query=24575), BAD),
    Mutation(
        "samples-per-query",
        f"{OFFLINE}/{PERFORMANCE}".replace(HOME, NETWORK),
        logged(effective_samples_per_query=24575),
        OK,
        NET,
    ),
    Mutation("checker-gap", f"{EDGE}/Server/{PERFORMANCE}", logged(effective_scenario="Server"), None, SERVED),
    Mutation("latency-settings", SERVER_LOG, logged(requested_server_ttft_latency=3 * 10**9), OK),
    Mutation("latency", SERVER_LOG, logged(result_first_token_99__00_percentile_latency_ns=2 * 10**9), BAD),
    Mutation("latency", SERVER_LOG, logged(result_time_per_output_token_99__00_percentile_ns=2 * 10**8), BAD),
    Mutation("latency", AMD_LOG, logged(result_first_token_99__00_percentile_latency_ns=5 * 10**8), OK, V51),
    Mutation("latency", AMD_LOG, logged(result_first_token_99__00_percentile_latency_ns=2 * 10**9), BAD, V51),
    # compliance
    Mutation("compliance", f"{SERVER}/TEST06", shutil.rmtree, BAD),
    Mutation("compliance", AMD_TEST, shutil.rmtree, BAD, V51),
    Mutation("compliance-verdict", VERDICT, words("EOS check pass: True", "EOS check pass: False"), BAD),
    Mutation(
        "compliance-verdict", f"{AMD_TEST}/verify_accuracy.txt", words("First token check pass: True", ""), BAD, V51
    ),
    Mutation("compliance-verdict", f"{TEST07}/verify_accuracy.txt", words("PASS", "FAIL"), None, OSS),
    Mutation("compliance-file", ANSWERS, Path.unlink, OK),
    Mutation("compliance-file", f"{TEST09}/{PERFORMANCE}", Path.unlink, None, OSS),
    Mutation("test06-log", ANSWERS, answer(token_count=5), OK),
    Mutation("test06-log", ANSWERS, answer(data="01000000", token_count=1), OK),
    Mutation("test07-score", f"{TEST07}/verify_accuracy.txt", words("61.616", "60.697"), None, OSS),
    Mutation("test09-length", f"{TEST09}/{PERFORMANCE}", logged(result_tokens_per_second=50 * 1150), None, OSS),
    Mutation("test09-length", f"{TEST09}/{PERFORMANCE}", logged(result_tokens_per_second=50 * 1407), None, OSS),
]
