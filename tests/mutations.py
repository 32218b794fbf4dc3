"""Changes that break one rule of check in a tree without errors.

published_mutations.py and made_mutations.py are the table.
"""

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from golden import GOLDEN
from trees import ACCURACY, PERFORMANCE, SCORES_FILE, build_tree, rename, sparse, write, write_json

from harness_llm.config.rules import load_round

Break = Callable[[Path], object]
"""Changes the file or folder at a path."""

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


def fields(**values: object) -> Break:
    """Change fields of a JSON object; None removes one."""

    def change(path: Path) -> None:
        document = json.loads(path.read_text()) | values
        write_json(path, {name: value for name, value in document.items() if value is not None})

    return change


def logged(**values: object) -> Break:
    """Change what LoadGen logged; `__` is written for a dot."""
    wanted = {name.replace("__", "."): value for name, value in values.items()}

    def change(path: Path) -> None:
        messages = [json.loads(line.removeprefix(":::MLLOG ")) for line in path.read_text().splitlines()]
        assert wanted.keys() <= {message["key"] for message in messages}
        changed = [message | {"value": wanted.get(message["key"], message["value"])} for message in messages]
        path.write_text("".join(f":::MLLOG {json.dumps(message)}\n" for message in changed))

    return change


def seeds_of(round_name: str) -> Break:
    """Change the seeds that LoadGen logged to those of another round."""
    return logged(**{f"effective_{name}": seed for name, seed in load_round(round_name).loadgen.seeds.items()})


def unlogged(key: str) -> Break:
    """Remove a line of LoadGen's log."""

    def change(path: Path) -> None:
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if f'"key": "{key}"' not in line]
        assert len(kept) == len(lines) - 1
        path.write_text("".join(kept))

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


def described(home: str) -> Break:
    """Add the document that the published trees lack."""
    return lambda tree: write(tree / home / ARCHITECTURE, "Two NICs of 400 Gbit/s each.\n")


def gpt_oss(tree: Path) -> None:
    described(HOME)(tree)
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
    described(HOME)(tree)
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
    """Move the result to the network division, with its fields; LoadGen's log has the required SUT name."""
    rename(tree / HOME, tree / NETWORK)
    described(NETWORK)(tree)
    wired = dict.fromkeys(load_round("v6.0").system.network, "as wired")
    fields(**wired | {"is_network": "true", "division": "network"})(tree / SYSTEM.replace(HOME, NETWORK))


class Base(NamedTuple):
    """A tree without errors: how it is made in an empty folder, and the round whose rules apply."""

    make: Callable[[Path], object]
    round: str


def golden(name: str, *changes: Break) -> Callable[[Path], object]:
    """A copy of a published tree, changed."""

    def make(tree: Path) -> None:
        shutil.copytree(GOLDEN / name, tree)
        for change in changes:
            change(tree)

    return make


V60 = Base(golden("v6.0", described(HOME)), "v6.0")
V51 = Base(golden("v5.1", described(AMD)), "v5.1")
OSS = Base(golden("v6.0", gpt_oss), "v6.0")
NET = Base(golden("v6.0", network), "v6.0")
POWERED = Base(golden("v6.0", powered), "v6.0")
POWERED_V61 = Base(golden("v6.0", powered), "v6.1")
SERVED = Base(golden("v6.0-wrong-seeds", served), "v6.0")
OPEN = Base(golden("v6.0-wrong-seeds", lambda tree: shutil.rmtree(tree / "closed")), "v6.0")
MADE_CLOSED = Base(lambda tree: build_tree(tree, "closed"), "v6.1")
MADE_OPEN = Base(lambda tree: build_tree(tree, "open"), "v6.1")


class Mutation(NamedTuple):
    """A change of `place` and the findings that it adds.

    Attributes:
        rule: found once at each of `at`, which is `place` unless given; "" for a change that breaks no rule.
        codes: exit codes of the official checker, plain and with --submission-exceptions; not OK where the finding's
            authority is the official checker. None where it rejects the tree anyway.
        severity: of the findings of `rule`, where it depends on the division.
        also: findings of other rules, each "rule place".
    """

    rule: str
    place: str
    breaks: Break
    codes: tuple[int, int] | None = None
    base: Base = V60
    at: tuple[str, ...] = ()
    severity: str = ""
    also: tuple[str, ...] = ()

    @property
    def adds(self) -> Counter[tuple[str, str]]:
        own = [(self.rule, place) for place in self.at or (self.place,)] if self.rule else []
        others = [(rule, place) for rule, _, place in (other.partition(" ") for other in self.also)]
        return Counter([*own, *others])
