"""Files that `tune --write` changes: diffs apply, comments stay, and the results have the wanted values."""

import subprocess
from pathlib import Path

import pytest
import yaml
from tuning_sessions import SESSION, trial
from workspaces import make_workspace

from harness_llm.config.options import Options
from harness_llm.config.plan import resolve
from harness_llm.config.request import Request
from harness_llm.config.settings_files import settings_files
from harness_llm.errors import ConfigError
from harness_llm.paths import Workspace
from harness_llm.pipeline.tuning.found_files import FileChange, changes, engine_file, record_change
from harness_llm.pipeline.tuning.settings_edit import with_engine_settings, with_target
from harness_llm.runs.trial_store import open_session

SETTINGS = {"llm_config.max_num_seqs": 512, "llm_config.async_scheduling": False, "harness_config.backlog": 16}
ROOT_FILE = """\
provenance:
  kind: published # of a submitter
llm_config:
  max_num_seqs: 704   # what the cache holds
  # a comment in the section
  attention_backend: 'FLASH # 3'

# the end of llm_config
env_config:
  A: "1"
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def planned(workspace: Workspace, gpu: str = "h200", model: str = "llama2-70b", scenario: str = "Offline") -> Request:
    options = Options(model=model, gpu=gpu, scenarios=(scenario,), system_name="box", profile="valid")
    return resolve(options, workspace)


@pytest.mark.parametrize(("gpu", "scenario"), [("h200", "Offline"), ("h200", "Server"), ("mi300x", "Interactive")])
def test_diff_applies_and_the_files_have_the_values(workspace: Workspace, gpu: str, scenario: str) -> None:
    request = planned(workspace, gpu, scenario=scenario)
    found = changes(request, request.scenarios[0], SETTINGS, 97.5)
    assert len(found) == 2
    subprocess.run(
        ["patch", "-p1", "--fuzz=0"],
        input="".join(one.diff(workspace.root) for one in found),
        cwd=workspace.root,
        text=True,
        check=True,
    )
    assert [one.file.read_text() for one in found] == [one.after for one in found]
    [plan] = planned(workspace, gpu, scenario=scenario).scenarios
    assert plan.config.llm_config["max_num_seqs"] == 512
    assert plan.config.llm_config["async_scheduling"] is False
    assert plan.config.harness_config.backlog == 16
    assert plan.load.target_qps == 97.5
    assert changes(request, plan, SETTINGS, 97.5) == []


def test_new_settings_file_is_made_for_a_scenario_without_one(workspace: Workspace) -> None:
    request = planned(workspace, "cpu", "demo")
    [change] = changes(request, request.scenarios[0], SETTINGS, None)
    assert change.file == workspace.root / "models" / "demo" / "offline_cpu.yaml"
    assert "--- /dev/null" in change.diff(workspace.root)
    change.write()
    assert change.file in settings_files(workspace.root / "models", request.benchmark, "Offline", "cpu")
    assert changes(request, request.scenarios[0], SETTINGS, None) == []


def test_diff_of_a_file_outside_the_checkout_is_relative_to_the_root_folder(workspace: Workspace) -> None:
    change = FileChange(Path("/etc/mine.conf"), "a\n", "b\n")
    assert change.diff(workspace.root).startswith("--- a/etc/mine.conf\n+++ b/etc/mine.conf\n")


def test_only_the_lines_of_the_settings_change() -> None:
    after = with_engine_settings(ROOT_FILE, SETTINGS | {"llm_config.attention_backend": "TRITON"}, "file")
    assert after == ROOT_FILE.replace("704   #", "512   #").replace(
        "'FLASH # 3'", '"TRITON"\n  async_scheduling: false'
    ) + ("harness_config:\n  backlog: 16\n")


@pytest.mark.parametrize(
    "text",
    [
        "llm_config: {max_num_seqs: 8}\n",
        "llm_config:\n  max_num_seqs:\n    - 3\n",
        "llm_config:\n  max_num_seqs: |\n    3\n",
    ],
)
def test_file_with_another_layout_is_refused_with_the_values_to_set(text: str) -> None:
    with pytest.raises(ConfigError, match="layout") as error:
        with_engine_settings(text, {"llm_config.max_num_seqs": 512}, "file")
    assert "max_num_seqs=512" in error.value.hint


def test_new_target_follows_the_lines_of_its_model() -> None:
    text = "# targets\na.Offline.target_qps = 1\n\n# of b\nb.Offline.target_qps = 2\n"
    assert with_target(text, "a.Server.target_qps", "0.5") == text.replace("= 1\n", "= 1\na.Server.target_qps = 0.5\n")
    assert with_target(text, "b.Offline.target_qps", "3") == text.replace("= 2", "= 3")
    assert with_target(text, "c.Offline.target_qps", "3") == text + "c.Offline.target_qps = 3\n"


def test_record_has_all_trials_and_no_folder_of_this_machine(workspace: Workspace) -> None:
    request = planned(workspace)
    store = open_session(workspace.root / "tuning", SESSION)
    store.append(trial(0, run=f"{workspace.root}/run", seconds=12.3456))
    store.append(trial(1, settings=SETTINGS, state="FAILED", reason="CUDA out of memory"))
    store.finish({"settings": SETTINGS})
    record = record_change(request, store, "Offline")
    assert record.file.parent == engine_file(request, "Offline").parent
    assert str(workspace.root) not in record.after
    kept = yaml.safe_load(record.after)
    assert kept["found"] == {"settings": SETTINGS}
    assert [one["state"] for one in kept["trials"]] == ["VALID", "FAILED"]
    assert kept["trials"][0]["seconds"] == 12.35
    record.write()
    again = record_change(request, store, "Offline")
    assert again.before == again.after
