"""What `make docker_clean` removes: all images that are built here, and nothing that is in use."""

import sys
from collections.abc import Mapping

from docker.errors import APIError

from harness_llm.containers.build import LABEL
from harness_llm.containers.daemon import connect
from harness_llm.containers.from_environment import CHECKOUT_LABEL, container_program, is_podman
from harness_llm.errors import EnvironmentMissing


def clean(environ: Mapping[str, str]) -> None:
    """Remove the images, and say which on standard output; runs, models and data stay where they are.

    Raises:
        EnvironmentMissing: no daemon answers, or a container of one of them is still there.
    """
    daemon = connect(podman=is_podman(container_program(environ)))
    containers = daemon.client.containers.list(all=True, filters={"label": CHECKOUT_LABEL})
    if containers:
        names = " ".join(str(container.name) for container in containers)
        raise EnvironmentMissing(
            "containers of these images are still there",
            found=names,
            hint=f"end what runs in them, or docker rm --force {names}, and run the same command again",
        )
    for image in daemon.client.images.list(filters={"label": f"{LABEL}.image"}):
        try:
            daemon.client.images.remove(str(image.id), force=True)
        except APIError as error:
            raise EnvironmentMissing(
                "an image cannot be removed", where=" ".join(image.tags) or str(image.id), found=str(error.explanation)
            ) from error
        sys.stdout.write(f"{' '.join(image.tags) or image.short_id}\n")
