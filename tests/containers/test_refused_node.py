"""A node that cannot submit is refused before any image is built and before anything is downloaded."""

import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from account import Account, reset_settings
from dockerd import Dockerd
from machine import Machine, Node, function
from publisher import Publisher

pytestmark = pytest.mark.gpu_rehearsal

# This profile needs neither a token nor disk for a model, so that the fault alone refuses.
OPTIONS = {"COMPANY": "Acme", "SYSTEM_NAME": "box", "DIVISION": "open", "MODEL": "llama2-70b", "PROFILE": "rehearsal"}
CLOSED = {"DIVISION": "closed", "PROFILE": ""}
STORAGE = "https://inference.mlcommons-storage.org"
BASE = "harness-llm-tiny:v1-cu129"


@dataclass(frozen=True)
class Fault:
    """What is wrong with a node or a command, and a text of the refusal that names it."""

    told: str
    node: Node = field(default_factory=Node)
    words: Mapping[str, str] = field(default_factory=dict)
    base: str = BASE
    gpu: str = "h200"
    count: int = 8


CPX = {function(number, "current_compute_partition"): "CPX" for number in range(8)}
FAULTS = {
    "a GPU is missing": Fault("7 x NVIDIA H200", count=7),
    "MIG is on": Fault("sudo nvidia-smi -i", Node({"mig.mode.current": "Enabled"})),
    "another process holds the memory": Fault("GiB, gpu_memory_utilization", Node({"memory.free": 20000})),
    "the fabric manager does not run": Fault("nvidia-fabricmanager", Node({"fabric.state": "In Progress"})),
    "the driver is too old for the image": Fault("or newer, which CUDA", Node({"driver_version": "470.57.02"})),
    "ECC is off, for closed": Fault("ECC of the accelerators is off", Node({"ecc.mode.current": "Disabled"}), CLOSED),
    "the system is not described, for closed": Fault("submission/systems/box.yaml", words=CLOSED),
    "no submitter is named": Fault("COMPANY=Acme", words={"COMPANY": ""}),
    "there is no such scenario": Fault("MultiStream", words={"SCENARIOS": "Offline,MultiStream"}),
    "there is no token for a gated model": Fault("Hugging Face token", words={"PROFILE": ""}),
    "data cannot be downloaded": Fault("not found in MLCommons' storage", words={"PROFILE": ""}),
    "the base image is in no registry": Fault("base image not available", base="localhost:9/none:v1-cu129"),
    "a GPU of AMD is divided": Fault("SPX", Node(files=CPX), gpu="mi300x"),
}


@pytest.fixture(scope="module")
def storage() -> Iterator[Publisher]:
    """MLCommons' and Hugging Face's storage, which records what is asked for."""
    with Publisher() as publisher:
        yield publisher


@pytest.fixture
def user(node_account: Account, storage: Publisher) -> Account:
    """The user of the node, whose checkout downloads from `storage`."""
    reset_settings(node_account)
    for file in (node_account.checkout / "models").glob("*/benchmark.yaml"):
        file.write_text(file.read_text().replace(STORAGE, storage.url))
    return node_account


@pytest.fixture(scope="module", autouse=True)
def base_image(node_dockerd: Dockerd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A base image on which no image can be built."""
    file = tmp_path_factory.mktemp("tiny") / "tiny.tar"
    with tarfile.open(file, "w") as tar:
        tar.add(__file__, "file")
    node_dockerd.docker("import", str(file), BASE)
    yield
    node_dockerd.docker("rmi", BASE)


def submit(
    user: Account, storage: Publisher, words: Mapping[str, str], base: str = BASE
) -> "subprocess.CompletedProcess[str]":
    settings = [f"{name}={value}" for name, value in {**OPTIONS, **words}.items() if value]
    return user.run("make", "submission", *settings, HF_ENDPOINT=storage.url, BASE_IMAGE=base)


def images(dockerd: Dockerd) -> list[str]:
    """The images that the program has built."""
    return dockerd.docker("images", "--quiet", "--filter", "label=harness-llm.image").split()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_node_with_a_fault_is_refused_before_build_and_download(
    fault: Fault, user: Account, machine: Machine, node_dockerd: Dockerd, storage: Publisher
) -> None:
    before = images(node_dockerd)
    machine.plug(fault.gpu, fault.count, fault.node)
    done = submit(user, storage, fault.words, fault.base)
    assert done.returncode, done.stderr
    assert fault.told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (user.checkout / "build/containers/build_model_and_dataset.log").exists()
    assert images(node_dockerd) == before
    assert storage.content_requests() == []


def test_node_without_a_fault_reaches_the_build(user: Account, machine: Machine, storage: Publisher) -> None:
    """So the refusals above are not of something that every node has."""
    machine.plug("h200")
    done = submit(user, storage, {})
    log = user.checkout / "build/containers/build_model_and_dataset.log"
    assert log.is_file(), done.stderr
    log.unlink()
    assert storage.content_requests() == []
