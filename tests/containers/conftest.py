import os
import re
from collections.abc import Iterator

import base_image as debian
import nltk
import punkt
import pytest
import vendor_image
from account import Account, make_account
from dockerd import PATH, Dockerd, NoDaemon, install, start
from images import IMAGES, SECRET, Ended, timed
from machine import DOCKER_ARGS, Machine, make_machine

from harness_llm.config.assets import Assets
from harness_llm.paths import CHECKOUT

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def proxies() -> dict[str, str]:
    """The variables by which this machine's user reaches the network."""
    return {name: os.environ[name] for proxy in PROXIES for name in (proxy, proxy.lower()) if name in os.environ}


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    """A daemon without images."""
    try:
        install()
        running = start(CHECKOUT / "build" / "containers" / "daemon")
        daemon = running.__enter__()
    except NoDaemon as reason:
        pytest.skip(f"no Docker daemon can be started: {reason}")
    try:
        yield daemon
    finally:
        running.__exit__(None, None, None)


@pytest.fixture(scope="session")
def base_image(dockerd: Dockerd) -> str:
    """The name of an image as the spec's base image is."""
    return debian.load(dockerd)


@pytest.fixture(scope="session")
def account(dockerd: Dockerd, base_image: str) -> Iterator[Account]:
    """An ordinary user in the group docker, who builds upon the base image of the tests."""
    with make_account(proxies() | {"DOCKER_HOST": dockerd.host, "BASE_IMAGE": base_image}) as account:
        yield account


@pytest.fixture(scope="session")
def builds(account: Account, dockerd: Dockerd) -> dict[str, Ended]:
    """Both images, built while a token is in the environment."""
    assert not set(IMAGES.values()) & set(dockerd.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split())
    return {name: timed(account, "bash", f"setup/build_{name}_env.sh", HF_TOKEN=SECRET) for name in IMAGES}


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """A node into which tests plug accelerators."""
    try:
        install()
    except NoDaemon as reason:
        pytest.skip(f"no node can be rehearsed: {reason}")
    with make_machine() as machine:
        yield machine


@pytest.fixture(scope="session")
def node_dockerd(machine: Machine) -> Iterator[Dockerd]:
    """The node's Docker daemon, without images, which finds NVIDIA's runtime hook."""
    data = CHECKOUT / "build" / "containers" / "node"
    with start(data, enter=machine.enter, programs=machine.programs) as daemon:
        yield daemon


@pytest.fixture(scope="session")
def node_account(machine: Machine, node_dockerd: Dockerd) -> Iterator[Account]:
    """A user of the node."""
    environment = {"DOCKER_HOST": node_dockerd.host, "PATH": f"{machine.programs}:{PATH}", "DOCKER_ARGS": DOCKER_ARGS}
    with make_account(proxies() | environment, name="harness-llm-node", enter=machine.enter) as account:
        spec = account.checkout / "setup" / "containers.yaml"
        account.write(spec, re.sub(r"disk_gib: \d+", "disk_gib: 8", spec.read_text()))  # vendors' images are larger
        yield account


@pytest.fixture(scope="session")
def prepared_account(
    node_account: Account, node_dockerd: Dockerd, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> Account:
    """The user of the node with the vendors' base image and the demo's model, which the first container quantizes."""
    vendor_image.load(node_dockerd)
    build, splitter = node_account.checkout / "build", tmp_path_factory.mktemp("nltk")
    node_account.run("mkdir", "--parents", *(build / name for name in ("models", "data", "cache")))
    node_account.copy(assets.original, build / "models" / assets.original.name)
    node_account.copy(assets.calibration.parent, build / "data" / assets.calibration.parent.name, without="reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nltk.data, "path", [str(splitter)])  # nltk writes to no other folder
        punkt.train(splitter, [file.read_text() for file in (CHECKOUT / "docs").glob("*.md")])
    node_account.copy(splitter, build / "cache" / "nltk")
    return node_account
