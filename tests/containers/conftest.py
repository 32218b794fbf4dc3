import os
from collections.abc import Iterator

import pytest
from account import Account, make_account
from base_image import load
from dockerd import Dockerd, NoDaemon, install, start
from images import IMAGES, SECRET, Ended, timed

from harness_llm.workspace import CHECKOUT

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


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
    return load(dockerd)


@pytest.fixture(scope="session")
def account(dockerd: Dockerd, base_image: str) -> Iterator[Account]:
    """An ordinary user in the group docker, who builds upon the base image of the tests."""
    proxies = {name: os.environ[name] for proxy in PROXIES for name in (proxy, proxy.lower()) if name in os.environ}
    with make_account(proxies | {"DOCKER_HOST": dockerd.host, "BASE_IMAGE": base_image}) as account:
        yield account


@pytest.fixture(scope="session")
def builds(account: Account, dockerd: Dockerd) -> dict[str, Ended]:
    """Both images, built while a token is in the environment."""
    assert not set(IMAGES.values()) & set(dockerd.docker("images", "--format", "{{.Repository}}:{{.Tag}}").split())
    return {name: timed(account, "bash", f"setup/build_{name}_env.sh", HF_TOKEN=SECRET) for name in IMAGES}
