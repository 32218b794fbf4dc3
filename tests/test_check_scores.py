"""Rules on accuracy and compliance: each broken, one by one."""

import json
import shutil

import numpy as np
import pytest
from trees import (
    ACCURACY,
    CLOSED,
    OPEN,
    RULES,
    SCORES,
    SCORES_FILE,
    SERVER,
    Case,
    answers,
    found,
    hashed,
    to_hex,
    write,
)

TEST06_LOG = "TEST06/accuracy/mlperf_log_accuracy.json"
VERDICT = "TEST06/verify_accuracy.txt"


def widened(answer: dict) -> dict:
    """The answer with ids of int64, as a SUT reports them that runs the official script with -d int64."""
    texts = {name: bytes.fromhex(answer[name]) for name in ("data", "token_data")}
    ids = {name: np.frombuffer(data, np.int32).astype(np.int64) for name, data in texts.items()}
    return answer | {name: wide.tobytes().hex() for name, wide in ids.items()}


ACCURACY_CASES = [
    Case(
        "no scores",
        "open",
        lambda h: (h.result / SCORES_FILE).unlink(),
        (f"error accuracy-file {OPEN}/{SCORES_FILE}",),
    ),
    Case(
        "no hash in closed",
        "closed",
        lambda h: h.scores(f"{SCORES}\n"),
        (f"error accuracy-hash {SERVER}/{SCORES_FILE}",),
    ),
    Case(
        "no hash in open",
        "open",
        lambda h: h.scores(f"{SCORES}\n"),
        (f"warning accuracy-hash {OPEN}/{SCORES_FILE}",),
    ),
    Case(
        "no answers",
        "open",
        lambda h: (h.result / "accuracy/mlperf_log_accuracy.json").unlink(),
        (f"error accuracy-log {OPEN}/accuracy/mlperf_log_accuracy.json",),
    ),
    Case(
        "answers not truncated",
        "open",
        lambda h: write(h.result / "accuracy/mlperf_log_accuracy.json", "x" * 10241),
        (f"error accuracy-log {OPEN}/accuracy/mlperf_log_accuracy.json",),
    ),
    Case(
        "answers just small enough",
        "open",
        lambda h: write(h.result / "accuracy/mlperf_log_accuracy.json", "x" * 10240),
        (),
    ),
    *(
        Case(
            f"{division} scores {text[:40]}",
            division,
            lambda h, t=text: h.scores(hashed(t)),
            (f"error accuracy-metric {SERVER if division == 'closed' else OPEN}/{SCORES_FILE}",),
        )
        for division in ("closed", "open")
        for text in (
            str(SCORES).replace("44.5", "np.float64(44.5)"),
            str(SCORES).replace("295.1", "nan"),
            str(SCORES).replace("'rouge2'", "'rogue2'"),
            str(SCORES).replace("28.7", "28.7.1"),
        )
    ),
    Case(
        "scores in quotes",
        "closed",
        lambda h: h.scores(hashed(str(SCORES).replace("44.5", "'44.5'"))),
        (),
    ),
    *(
        Case(
            f"{metric} {value} in {division}",
            division,
            lambda h, m=metric, v=value: h.scores(hashed(SCORES | {m: v})),
            (f"error accuracy-gate {SERVER}/{SCORES_FILE}",) if division == "closed" else (),
        )
        for metric, value in (
            ("rouge1", 44.3867),
            ("rouge2", 22.0131),
            ("rougeL", 28.5875),
            ("tokens_per_sample", 265.0),
            ("tokens_per_sample", 323.9),
        )
        for division in ("closed", "open")
    ),
    Case(
        "data set not covered",
        "open",
        lambda h: h.accuracy(effective_accuracy_sample_count=RULES.samples - 1),
        (f"error accuracy-samples {OPEN}/{ACCURACY}",),
    ),
    Case(
        "data set of an older LoadGen",
        "open",
        lambda h: h.accuracy(effective_accuracy_sample_count=0, qsl_reported_total_count=5000),
        (f"error accuracy-samples {OPEN}/{ACCURACY}",),
    ),
]

COMPLIANCE_CASES = [
    Case(
        "no TEST06 in closed",
        "closed",
        lambda h: shutil.rmtree(h.result / "TEST06"),
        (f"error compliance {SERVER}/TEST06",),
    ),
    Case("no TEST06 in open", "open", lambda h: shutil.rmtree(h.result / "TEST06"), ()),
    Case(
        "no verdict",
        "closed",
        lambda h: (h.result / VERDICT).unlink(),
        (f"error compliance-verdict {SERVER}/{VERDICT}",) * 3,
    ),
    *(
        Case(
            f"{line} False",
            "open",
            lambda h, x=line: write(
                h.result / VERDICT, (h.result / VERDICT).read_text().replace(f"{x} True", f"{x} False")
            ),
            (f"warning compliance-verdict {OPEN}/{VERDICT}",),
        )
        for line in ("First token check pass:", "EOS check pass:", "Sample length check pass:")
    ),
    Case(
        "no TEST06 log",
        "closed",
        lambda h: (h.result / TEST06_LOG).unlink(),
        (f"error compliance-file {SERVER}/{TEST06_LOG}",),
    ),
    Case(
        "empty TEST06 log",
        "closed",
        lambda h: write(h.result / TEST06_LOG, "[]"),
        (f"warning test06-log {SERVER}/{TEST06_LOG}",),
    ),
    Case(
        "truncated TEST06 log",
        "closed",
        lambda h: write(h.result / TEST06_LOG, "[\n\n...\n\n]"),
        (f"warning test06-log {SERVER}/{TEST06_LOG}",),
    ),
    *(
        Case(
            f"TEST06 log of {count} answers",
            "closed",
            lambda h, n=count: write(h.result / TEST06_LOG, json.dumps(answers("Server", count=n))),
            (),
        )
        for count in (89, 108)
    ),
    Case(
        "TEST06 log with ids of 64 bits",
        "closed",
        lambda h: write(h.result / TEST06_LOG, json.dumps([widened(a) for a in answers("Server")])),
        (),
    ),
    Case(
        "two EOS in ids of 64 bits",
        "closed",
        lambda h: write(
            h.result / TEST06_LOG,
            json.dumps([widened(a | {"data": to_hex([a["qsl_idx"] + 1000, 7, 2, 2])}) for a in answers("Server")]),
        ),
        (f"error test06-log {SERVER}/{TEST06_LOG}",),
    ),
    *(
        Case(
            f"two EOS in {division}",
            division,
            lambda h: h.test06("Server", data=to_hex([1000, 7, 2, 2])),
            (f"{severity} test06-log {place}/{TEST06_LOG}",),
        )
        for division, severity, place in (("closed", "error", SERVER), ("open", "warning", OPEN))
    ),
    Case(
        "EOS inside of an answer, which the official script lets pass",
        "closed",
        lambda h: h.test06("Server", data=to_hex([1000, 2, 8, 2])),
        (f"warning test06-log {SERVER}/{TEST06_LOG}",),
    ),
    Case(
        "first token not in the answer",
        "closed",
        lambda h: h.test06("Server", token_data=to_hex([9])),
        (f"error test06-log {SERVER}/{TEST06_LOG}",),
    ),
    Case(
        "wrong token count",
        "closed",
        lambda h: h.test06("Offline", token_count=5),
        (f"error test06-log {CLOSED}/Offline/{TEST06_LOG}",),
    ),
]


@pytest.mark.parametrize("case", [*ACCURACY_CASES, *COMPLIANCE_CASES], ids=lambda case: case.id)
def test_a_broken_rule_is_found_and_nothing_else(tmp_path, case):
    assert found(case, tmp_path) == sorted(case.findings)
