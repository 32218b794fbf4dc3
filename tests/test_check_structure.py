"""Rules on what stands where, on files, systems and measurements: each broken, one by one."""

import shutil

import pytest
from trees import (
    ACCURACY,
    CLOSED,
    DESCRIPTION,
    OPEN,
    PERFORMANCE,
    ROUND,
    SERVER,
    Case,
    R,
    found,
    rename,
    sparse,
    write,
    write_json,
)

TREE_CASES = [
    Case("no result", "open", lambda h: shutil.rmtree(h.path / "results"), ("error results .",)),
    Case(
        "no source",
        "open",
        lambda h: shutil.rmtree(h.path / "src"),
        ("error source src",),
    ),
    Case("empty source", "open", lambda h: shutil.rmtree(h.path / "src/tiny"), ("error source src",)),
    Case(
        "no calibration document",
        "closed",
        lambda h: (h.path / "documentation/calibration.md").unlink(),
        ("error calibration .",),
    ),
    Case(
        "a calibration document of one engine",
        "closed",
        lambda h: rename(h.path / "documentation/calibration.md", h.path / "documentation/calibration_vllm.md"),
        (),
    ),
    Case(
        "no description of a datacenter system",
        "closed",
        lambda h: (h.path / "documentation/system_architecture.md").unlink(),
        ("warning architecture .",),
    ),
    Case(
        "a description by another name",
        "closed",
        lambda h: rename(h.path / "documentation/system_architecture.md", h.path / "documentation/bandwidth.md"),
        (),
    ),
    Case(
        "mapping to nothing",
        "open",
        lambda h: write_json(h.path / "model_mapping.json", {"tiny": "llama2-70b-99"}),
        (f"error benchmark {R}/tiny",),
    ),
    Case(
        "no mapping",
        "open",
        lambda h: (h.path / "model_mapping.json").unlink(),
        (f"error benchmark {R}/tiny",),
    ),
    Case(
        "broken mapping",
        "open",
        lambda h: write(h.path / "model_mapping.json", "{"),
        ("error model-mapping model_mapping.json", f"error benchmark {R}/tiny"),
    ),
    Case(
        "unknown benchmark in closed",
        "closed",
        lambda h: rename(h.benchmark, h.benchmark.with_name("llama2-70b-99")),
        (f"error benchmark {R}/llama2-70b-99",),
    ),
    Case(
        "no Offline in closed",
        "closed",
        lambda h: shutil.rmtree(h.benchmark / "Offline"),
        (f"error scenarios {CLOSED}",),
    ),
    Case(
        "neither Server nor Interactive in closed",
        "closed",
        lambda h: shutil.rmtree(h.result),
        (f"error scenarios {CLOSED}",),
    ),
    Case("Server alone in open", "open", lambda h: shutil.rmtree(h.benchmark / "Offline"), ()),
    Case(
        "a scenario that the benchmark does not have",
        "closed",
        lambda h: shutil.copytree(h.result, h.benchmark / "MultiStream"),
        (
            f"error scenarios {CLOSED}/MultiStream",
            f"error log-scenario {CLOSED}/MultiStream/{PERFORMANCE}",
            f"error log-scenario {CLOSED}/MultiStream/{ACCURACY}",
        ),
    ),
    Case(
        "a datacenter benchmark on an edge system",
        "closed",
        lambda h: h.edit(DESCRIPTION, {"system_type": "edge"}),
        (f"error scenarios {CLOSED}",),
    ),
    Case("two categories", "closed", lambda h: h.edit(DESCRIPTION, {"system_type": "datacenter,edge"}), ()),
    Case(
        "scenario in lower case",
        "closed",
        lambda h: rename(h.result, h.benchmark / "server"),
        (f"warning scenario-name {CLOSED}/server",),
    ),
    Case(
        "no scenario",
        "open",
        lambda h: rename(h.result, h.benchmark / "Bulk"),
        (f"error scenario-name {R}/tiny/Bulk",),
    ),
    Case(
        "empty power folder",
        "open",
        lambda h: (h.result / "performance/power").mkdir(),
        (
            f"warning system-power {DESCRIPTION}",
            *(
                f"error power {OPEN}/performance/{folder}/{name}"
                for folder, files in (
                    ("power", ROUND.power["power"].required),
                    ("ranging", ROUND.power["ranging"].required),
                    ("run_1", ["spl.txt"]),
                )
                for name in files
            ),
        ),
    ),
    Case(
        "space in a name",
        "open",
        lambda h: write(h.path / "src/tiny/a b.md", "x"),
        ("warning file-name src/tiny/a b.md",),
    ),
    Case("dot-file", "open", lambda h: write(h.path / "src/.env", "x"), ("warning file-name src/.env",)),
    Case(
        "symlink",
        "open",
        lambda h: (h.path / "src/link.md").symlink_to("tiny/README.md"),
        ("warning symlink src/link.md",),
    ),
    Case(
        "large file",
        "open",
        lambda h: sparse(h.path / "src/core", 50 * 2**20 + 1),
        ("warning file-size src/core",),
    ),
    Case("largest file", "open", lambda h: sparse(h.path / "src/core", 50 * 2**20), ()),
    Case("file beside the divisions", "open", lambda h: write(h.tree / "to do.txt", "x"), ()),
    Case(
        "no summary",
        "open",
        lambda h: (h.result / "accuracy/mlperf_log_summary.txt").unlink(),
        (f"error summary {OPEN}/accuracy/mlperf_log_summary.txt",),
    ),
]

SYSTEM_CASES = [
    Case(
        "no description",
        "open",
        lambda h: (h.path / DESCRIPTION).unlink(),
        (f"error system-file {DESCRIPTION}",),
    ),
    Case(
        "description is no JSON",
        "closed",
        lambda h: write(h.path / DESCRIPTION, "{"),
        (f"error system-file {DESCRIPTION}",),
    ),
    Case(
        "description is no object",
        "open",
        lambda h: write(h.path / DESCRIPTION, "[]"),
        (f"error system-file {DESCRIPTION}",),
    ),
    *(
        Case(
            f"no {name}",
            "open",
            lambda h, n=name: h.edit(DESCRIPTION, {n: None}),
            (f"error system-field {DESCRIPTION}",),
        )
        for name in (*ROUND.system.filled, *ROUND.system.present)
    ),
    *(
        Case(
            f"empty {name}",
            "open",
            lambda h, n=name: h.edit(DESCRIPTION, {n: ""}),
            (f"error system-field {DESCRIPTION}",),
        )
        for name in ROUND.system.filled
    ),
    Case(
        "no accelerators as a number",
        "open",
        lambda h: h.edit(DESCRIPTION, {"accelerators_per_node": 0}),
        (f"error system-field {DESCRIPTION}",),
    ),
    Case(
        "nodes in words",
        "open",
        lambda h: h.edit(DESCRIPTION, {"number_of_nodes": "one"}),
        (f"error system-number {DESCRIPTION}",),
    ),
    Case(
        "unknown status",
        "open",
        lambda h: h.edit(DESCRIPTION, {"status": "soon"}),
        (f"error system-status {DESCRIPTION}",),
    ),
    Case("status in upper case", "open", lambda h: h.edit(DESCRIPTION, {"status": "RDI"}), ()),
    Case(
        "type in upper case",
        "closed",
        lambda h: h.edit(DESCRIPTION, {"system_type": "Datacenter"}),
        (f"error system-type {DESCRIPTION}",),
    ),
    Case(
        "another submitter",
        "open",
        lambda h: h.edit(DESCRIPTION, {"submitter": "Emca"}),
        (f"error system-owner {DESCRIPTION}",),
    ),
    Case(
        "another division",
        "open",
        lambda h: h.edit(DESCRIPTION, {"division": "closed"}),
        (f"error system-owner {DESCRIPTION}",),
    ),
    Case(
        "closed over a network",
        "closed",
        lambda h: (
            h.edit(DESCRIPTION, dict.fromkeys(ROUND.system.network, "x") | {"is_network": "true"})
            or [h.performance(s, sut_name="Network SUT") for s in ("Offline", "Server")]
        ),
        (f"error system-network {DESCRIPTION}",),
    ),
    Case(
        "is_network is no string",
        "open",
        lambda h: h.edit(DESCRIPTION, {"is_network": False}),
        (f"error system-network {DESCRIPTION}",),
    ),
    Case(
        "placeholder in the description",
        "open",
        lambda h: h.edit(DESCRIPTION, {"cooling": "TODO"}),
        (f"warning placeholder {DESCRIPTION}:24",),
    ),
]

MEASUREMENTS_CASES = [
    Case(
        "no measurements",
        "open",
        lambda h: (h.result / "measurements.json").unlink(),
        (f"error measurements-file {OPEN}/measurements.json",),
    ),
    Case(
        "measurements are no JSON",
        "open",
        lambda h: write(h.result / "measurements.json", ""),
        (f"error measurements-file {OPEN}/measurements.json",),
    ),
    *(
        Case(
            f"{name} {value!r}",
            "open",
            lambda h, n=name, v=value: h.measurements(**{n: v}),
            (f"error measurements-field {OPEN}/measurements.json",),
        )
        for name in ROUND.measurements_fields
        for value in ("", None)
    ),
    *(
        Case(
            f"no {name}",
            "open",
            lambda h, n=name: (h.result / n).unlink(),
            (f"error measurements-beside {OPEN}/{name}",),
        )
        for name in ROUND.measurements_files
    ),
    *(
        Case(
            f"empty {name}",
            "open",
            lambda h, n=name: write(h.result / n, ""),
            (f"error measurements-beside {OPEN}/{name}",),
        )
        for name in ROUND.measurements_files
    ),
    Case(
        "user.conf without spaces",
        "open",
        lambda h: write(h.result / "user.conf", "*.Server.target_qps=50\n"),
        (f"warning user-conf {OPEN}/user.conf:1",),
    ),
    Case(
        "own latency limit in closed",
        "closed",
        lambda h: write(h.result / "user.conf", "*.Server.ttft_latency = 3000\n"),
        (f"error user-conf-closed {SERVER}/user.conf",),
    ),
    Case(
        "own latency limit in open",
        "open",
        lambda h: write(h.result / "user.conf", "*.Server.ttft_latency = 3000\n"),
        (),
    ),
    Case(
        "placeholder in the measurements",
        "open",
        lambda h: h.measurements(weight_data_types="<fp8>"),
        (f"warning placeholder {OPEN}/measurements.json:5",),
    ),
    Case("what a reader fills in", "open", lambda h: write(h.result / "README.md", 'export TOKEN="<token>"\n'), ()),
    Case(
        "placeholder in the README",
        "open",
        lambda h: write(h.result / "README.md", "Run it.\nTODO: how\n"),
        (f"warning placeholder {OPEN}/README.md:2",),
    ),
]


@pytest.mark.parametrize("case", [*TREE_CASES, *SYSTEM_CASES, *MEASUREMENTS_CASES], ids=lambda case: case.id)
def test_a_broken_rule_is_found_and_nothing_else(tmp_path, case):
    assert found(case, tmp_path) == sorted(case.findings)
