"""Installation of the virtual environments: stale layers, refusals, calls of uv."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from makefile import make, stub_checkout

from harness_llm.config.rules import load_round, round_names
from harness_llm.errors import EnvironmentMissing
from setup import environments, layers, uv
from setup.layers import LAYERS, LOCKED, CudaLayer, Layer

CHECKOUT = Path(__file__).resolve().parents[1]
RULES = [f"harness_llm/config/rules/{name}.yaml" for name in round_names()]
HERE = [name for name in LAYERS if not name.startswith("base-")]  # images replace them
PINNED = [layer.name for layer in LOCKED]
SOURCES = ["pyproject.toml", *(f"setup/requirements/{name}.txt" for name in PINNED), *RULES]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with the sources of the environments only."""
    for source in SOURCES:
        (tmp_path / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CHECKOUT / source, tmp_path / source)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complete(*names: str) -> None:
    """Leave what a finished set-up leaves."""
    for layer in (LAYERS[name] for name in names):
        for part in layer.parts:
            part.parent.mkdir(parents=True, exist_ok=True)
            part.touch()
        layer.stamp.write_text(environments.digest(layer))


def stale(*names: str) -> list[str]:
    keys = {id(layer): key for key, layer in LAYERS.items()}
    return [keys[id(layer)] for layer in environments.stale(names)]


def test_new_checkout_installs_each_layer_once_after_its_base(checkout: Path) -> None:
    assert stale("dev", "quantize", "loadgen", "cpu") == ["cpu", "dev", "quantize", "loadgen"]


def test_current_layer_is_not_installed_again(checkout: Path) -> None:
    complete(*HERE)
    before = sorted(checkout.rglob("*"))
    environments.ensure(HERE)
    assert sorted(checkout.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("setup/requirements/cpu.txt", "pip==1\n", ["cpu", "dev", "ray", "optuna", "loadgen"]),
        ("setup/requirements/cuda.txt", "pip==1\n", ["cuda", "loadgen-cuda", "ray-cuda", "optuna-cuda"]),
        ("setup/requirements/dev.txt", "pip==1\n", ["dev"]),
        ("pyproject.toml", '[project.urls]\nhome = "x"\n', HERE),
        ("pyproject.toml", '[tool.other]\nkey = "x"\n', []),
        ("harness_llm/config/rules/v7.0.yaml", "loadgen:\n  package: pip\n  version: 1\n", ["loadgen", "loadgen-cuda"]),
        (RULES[0], "# a comment\n", []),
    ],
)
def test_changed_source_makes_its_layers_stale(checkout: Path, file: str, text: str, expected: list[str]) -> None:
    complete(*HERE)
    with (checkout / file).open("a") as appended:
        appended.write(text)
    assert stale(*HERE) == expected


def test_interrupted_or_damaged_environment_is_installed_again(checkout: Path) -> None:
    complete("cpu", "quantize", "loadgen")
    LAYERS["quantize"].python.unlink()
    LAYERS["loadgen"].parts[0].unlink()
    assert stale("cpu", "quantize", "loadgen") == ["quantize", "loadgen"]
    LAYERS["cpu"].stamp.unlink()
    assert stale("cpu", "quantize") == ["cpu", "quantize"]


def test_moved_checkout_is_installed_again(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete("cpu")
    moved = tmp_path_factory.mktemp("moved") / "checkout"
    shutil.copytree(checkout, moved)
    monkeypatch.chdir(moved)
    assert stale("cpu") == ["cpu"]


def test_too_little_disk_space_is_refused_before_the_installation(checkout: Path) -> None:
    layers = [Layer("cpu", Path(".venv"), 3.0), Layer("quantize", Path(".venv-quantize"), 1.5)]
    environments.check_space(layers, free=int(4.5 * 1024**3))
    with pytest.raises(EnvironmentMissing, match=r"expected: 4\.5 GiB\n.*found: 4\.0 GiB\n\nhint: free some"):
        environments.check_space(layers, free=4 * 1024**3)
    Path(".venv").mkdir()
    environments.check_space(layers, free=4 * 1024**3)


def test_environment_in_use_is_not_replaced(checkout: Path) -> None:
    idle = [(7, "/usr/bin/python3"), (8, f"{checkout}/.venv-quantize/bin/python")]
    environments.check_idle(Path(".venv"), idle)
    with pytest.raises(EnvironmentMissing, match="found: process 9\n"):
        environments.check_idle(Path(".venv"), [*idle, (9, f"{checkout}/.venv/bin/python")])


def test_running_program_is_found_by_its_path(checkout: Path) -> None:
    Path("bin").mkdir()
    Path("bin/python").symlink_to(sys.executable)
    command = ["bin/python", "-c", "print('started', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        running = set(environments._programs())
        process.communicate("\n")
    assert (process.pid, f"{checkout}/bin/python") in running


def test_loadgen_of_every_round_is_installed(checkout: Path) -> None:
    layer, calls = LAYERS["loadgen"], []
    (layer.folder / "loadgen" / "0.5").mkdir(parents=True)
    layer.install(lambda *call: calls.append(call))
    rules = [load_round(name).loadgen for name in round_names()]
    assert [call[-1] for call in calls] == [f"{own.package}=={own.version}" for own in rules]
    assert [call[-2] for call in calls] == [f".venv/loadgen/{own.version}" for own in rules]
    assert not (layer.folder / "loadgen").exists()


LISTING = """\
:env:.find-links='/env/wheels /more/wheels'
global.cert='/etc/ca.pem'
global.extra-index-url='\\nhttps://one.example/simple\\nfile:///two/simple'
global.find-links='/global/wheels'
global.index-url='https://global.example/simple'
install.index-url='https://install.example/simple'
install.trusted-host='install.example'
list.format='columns'
"""


def test_pip_settings_are_passed_to_uv() -> None:
    assert uv.uv_variables(uv.pip_options(LISTING)) == {
        "SSL_CERT_FILE": "/etc/ca.pem",
        "UV_DEFAULT_INDEX": "https://install.example/simple",
        "UV_FIND_LINKS": "/env/wheels,/more/wheels",
        "UV_INDEX": "https://one.example/simple file:///two/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "install.example",
    }
    assert uv.uv_variables(uv.pip_options("")) == {}


@pytest.mark.parametrize(
    ("listing", "expected"),
    [("", False), (":env:.no-index='1'", True), ("global.no-index='true'\n:env:.no-index='0'", False)],
)
def test_unreachable_index_is_reported(listing: str, expected: bool) -> None:
    assert uv.no_index(uv.pip_options(listing)) is expected


@pytest.mark.parametrize(
    ("tail", "what", "hint"),
    [
        ("failed to write: No space left on device (os error 28)", "disk full", "free some space"),
        ("OSError: [Errno 13] Permission denied: 'x'", "no write permission", "change the owner of the checkout"),
        (
            "  cause: The build backend returned an error",
            "package cannot be compiled",
            "g++ python3-dev",
        ),
        ("dns error: Name or service not known", "package installation failed", "global.proxy"),
        ("ERROR: No matching distribution found", "package installation failed", "global.find-links"),
    ],
)
def test_failed_installation_is_reported_with_a_hint(tail: str, what: str, hint: str) -> None:
    assert uv.explain(tail)[0] == what
    assert hint in uv.explain(tail)[1]


@pytest.mark.parametrize("layer", LOCKED, ids=lambda layer: layer.name)
def test_every_package_is_pinned_and_no_file_names_a_host(layer: Layer) -> None:
    lines = (CHECKOUT / layer.requirements).read_text().splitlines()
    packages = [line for line in lines if not line.strip().startswith("#")]
    assert packages
    assert all(package.count("==") == 1 and "/" not in package for package in packages)
    cuda = () if isinstance(layer, CudaLayer) else ("nvidia-c", "cuda-")
    unwanted = ("torchvision", "torchaudio", "torchcodec", "pynvvideocodec", "mlcommons-loadgen", *cuda)
    assert not [line for line in packages if line.startswith(unwanted)]


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0)])
def test_python_version_without_wheels_is_refused(tmp_path: Path, version: tuple[int, ...]) -> None:
    python = tmp_path / "my python"
    name = "Python " + ".".join(map(str, version))
    python.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo {name} && exit\n'
        f'exec {sys.executable} -c "import sys; sys.version_info = {version}; $2"\n'
    )
    python.chmod(0o755)
    done = subprocess.run(
        [CHECKOUT / "setup" / "environments.sh", "cpu"],
        env={**os.environ, "PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "expected: Python 3.11, 3.12 or 3.13" in done.stderr
    assert f"found: {python} is {name}" in done.stderr
    assert "hint: install one" in done.stderr


def test_make_lists_its_targets() -> None:
    listed = make().stdout
    assert all(f"\n  {door} " in listed for door in ("submission", "test", "lint", "bench", "check", "clean"))


def test_unknown_make_setting_is_refused() -> None:
    done = make("-n", "submission", "COMPNAY=Acme")
    assert done.returncode == 2
    assert "unknown setting COMPNAY" in done.stderr


def test_make_settings_are_passed_unchanged(tmp_path: Path) -> None:
    stub_checkout(tmp_path, r'printf "%s\n" "$@"')
    company = """Ac'me & "Sons" $5 $(x) `y` #1 \\"""
    done = make("submission", f"COMPANY={company}", "SYSTEM_NAME=my  box", "MODEL=", folder=tmp_path)
    assert done.stdout.splitlines() == ["submit", f"--company={company}", "--system-name=my  box"]


def test_packages_of_the_base_image_are_kept_and_missing_ones_added(tmp_path: Path) -> None:
    pins = "torch==2.13.0+cpu\n    # via x\nrouge-score==0.1.2\nnvidia-nccl-cu12==1\n# a==1\nnumpy==2.0\n"
    assert layers.lacking(pins, ["torch", "nvidia-nccl-cu12"]) == ["rouge-score==0.1.2", "numpy==2.0"]
    assert layers.lacking(pins, []) == [
        "torch==2.13.0+cpu",
        "rouge-score==0.1.2",
        "nvidia-nccl-cu12==1",
        "numpy==2.0",
    ]


@pytest.fixture
def base_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python with packages of its own, as base images have; its environments see them."""
    packages = tmp_path / "packages"
    for name in ("torch", "numpy", "Typing_Extensions"):
        information = packages / f"{name}-9.9.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    return packages


def recorded_uv(calls: list[tuple[str, ...]]) -> Callable[..., None]:
    """Makes environments with this Python only, and records the calls of uv."""

    def call(*words: str) -> None:
        calls.append(words)
        if words[0] == "venv":
            python = Path(words[-1], "bin/python")
            python.parent.mkdir(parents=True)
            python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
            python.chmod(0o755)

    return call


def test_quantization_environment_takes_only_pytorch_from_the_base_image(checkout: Path, base_python: Path) -> None:
    calls: list[tuple[str, ...]] = []
    layer = LAYERS["base-quantize"]
    layer.install(recorded_uv(calls))
    assert "--system-site-packages" in calls[0]
    added = [word.partition("==")[0] for word in calls[1] if "==" in word]
    everything = [line.partition("==")[0] for line in layer.packages.splitlines() if line[0] not in " #"]
    assert added == [name for name in everything if name != "torch"]
    assert "numpy" in added


def test_base_image_without_vllm_is_refused_for_the_engine(checkout: Path, base_python: Path) -> None:
    calls: list[tuple[str, ...]] = []
    with pytest.raises(EnvironmentMissing, match=r"base image's Python: vllm(.|\n)*BASE_IMAGE"):
        LAYERS["base-host"].install(recorded_uv(calls))
    shutil.rmtree(LAYERS["base-host"].folder)
    information = base_python / "vllm-9.9.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 9.9\n")
    calls.clear()
    LAYERS["base-host"].install(recorded_uv(calls))
    added = {word.partition("==")[0] for word in calls[1] if "==" in word}
    assert "rouge-score" in added
    assert not {"numpy", "typing-extensions"} & added


def test_finished_image_installs_no_layer(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    complete("cpu")
    monkeypatch.setenv("HARNESS_LLM_IMAGE", "submission")
    environments.ensure(["cpu"])
    with pytest.raises(EnvironmentMissing, match=r"the checkout's pins(.|\n)*setup/build_submission_env\.sh"):
        environments.ensure(["cpu", "loadgen"])
