"""`status: available` requires released software; one result has one system and one set of versions."""

import importlib.metadata
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from harness_llm.errors import GateFailed
from harness_llm.submission.consistency import require_one_system
from harness_llm.submission.release import altered, availability_notices, faults_of_release

SUBJECT: dict[str, Any] = {
    "engine": "vllm",
    "llm_config": {"max_num_seqs": 64},
    "packages": {"vllm": "0.30.0", "torch": "2.13.0+cu130"},
    "software": "Linux 6.8",
}


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("0.30.0", ""),
        ("0.30.0rc2", ""),
        ("0.30.0+cpu", ""),
        ("2.13.0+cu130", ""),
        ("0.14.0+rocm700", ""),
        ("2.9.1+rocm7.2.0.lw.git7e1940d4", ""),
        ("0.11.1+9114fd76.nv25.10", ""),
        ("0.11.1rc2.dev141+g38f225c2a.rocm700", "a nightly or development build"),
        ("0.30.1.dev3", "a nightly or development build"),
        ("0.30.0+acme1", "built locally (+acme1)"),
        ("2.9.0a0+git1c57644", "built locally (+git1c57644)"),
    ],
)
def test_version_distinguishes_releases_from_nightly_and_local_builds(version: str, fault: str) -> None:
    expected = [f"vllm {version}: {fault}"] if fault else []
    assert faults_of_release({"packages": {"vllm": version}}) == expected
    server = {"servers": [{"url": "http://a:1", "version": version}]}
    assert faults_of_release(server) == ([f"the server http://a:1 {version}: {fault}"] if fault else [])


def test_only_available_systems_need_a_released_engine() -> None:
    nightly = SUBJECT | {"packages": {"vllm": "0.30.1.dev3"}}
    assert not availability_notices("preview", [nightly])
    (notice,) = availability_notices("available", [nightly, nightly])
    assert notice.startswith("status: available excludes vllm 0.30.1.dev3: a nightly or development build; expected")


@pytest.fixture
def rich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an installed package, which is found in place of the package."""
    distribution = importlib.metadata.distribution("rouge-score")
    for file in distribution.files or ():
        target = tmp_path / str(file)
        if file.suffix != ".pyc":
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_package_changed_after_its_installation_is_found(rich: Path) -> None:
    version = importlib.metadata.version("rouge-score")
    assert altered({"rouge-score": version}) == []
    scorer = rich / "rouge_score" / "rouge_scorer.py"
    scorer.write_text(scorer.read_text() + "\n# patched\n")
    assert altered({"rouge-score": version}) == [
        f"rouge-score {version}: 1 files changed since installation, for example rouge_score/rouge_scorer.py"
    ]
    assert altered({"rouge-score": "9"}) == []  # another version than the one that ran


@pytest.mark.parametrize(
    ("origin", "fault"),
    [
        ('{"url": "file:///src/vllm", "dir_info": {"editable": true}}', "installed from source (file:///src/vllm)"),
        ('{"url": "https://a/vllm", "vcs_info": {"vcs": "git"}}', "installed from source (https://a/vllm)"),
        ('{"url": "file:///wheels/vllm.whl", "archive_info": {}}', ""),
    ],
)
def test_package_installed_from_source_is_found(rich: Path, origin: str, fault: str) -> None:
    version = importlib.metadata.version("rouge-score")
    (metadata,) = rich.glob("*.dist-info")
    (metadata / "direct_url.json").write_text(origin)
    assert altered({"rouge-score": version}) == ([f"rouge-score {version}: {fault}"] if fault else [])


def test_scenarios_may_differ_in_engine_arguments_alone() -> None:
    require_one_system({})
    require_one_system({"Offline": SUBJECT, "Server": SUBJECT | {"llm_config": {"max_num_seqs": 8}}})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        (
            {"packages": {"vllm": "0.31.0", "torch": "2.13.0+cu130"}},
            "Server: packages.vllm: 0.31.0 vs 0.30.0 (Offline)",
        ),
        ({"software": "Linux 6.9"}, "Server: software: Linux 6.9 vs Linux 6.8 (Offline)"),
        ({"image": "sha256:2"}, "Server: image: sha256:2 vs absent (Offline)"),
        ({"servers": [{"url": "http://b:1", "version": "1.0"}]}, 'Server: servers: ["1.0"] vs [] (Offline)'),
        ({"nodes": [{"hardware": {"accelerators_per_node": "8"}, "inherited": {}}]}, "Server: nodes: "),
    ],
)
def test_scenarios_of_other_systems_or_versions_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(GateFailed, match="different systems or versions") as caught:
        require_one_system({"Offline": SUBJECT, "Server": SUBJECT | changes})
    assert caught.value.found.startswith(named)


def test_order_of_nodes_and_variables_makes_no_difference() -> None:
    a, b = ({"hardware": {"name": name}, "inherited": {"X": name}} for name in "ab")
    require_one_system(
        {"Offline": SUBJECT | {"nodes": [a, b]}, "Server": SUBJECT | {"nodes": [b, a | {"inherited": {}}]}}
    )
