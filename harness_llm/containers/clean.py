"""`make docker_clean`: remove the images of this project."""

import sys
from collections.abc import Mapping

from docker.errors import APIError

from harness_llm.containers.build import LABEL
from harness_llm.containers.daemon import connect
from harness_llm.containers.from_environment import CHECKOUT_LABEL, container_program, is_podman
from harness_llm.errors import EnvironmentMissing


def clean(environ: Mapping[str, str]) -> None:
    """Remove the images and print their names; keep runs, models and data.

    Raises:
        EnvironmentMissing: no Docker daemon, or a container of such an image exists.
    """
    daemon = connect(podman=is_podman(container_program(environ)))
    containers = daemon.client.containers.list(all=True, filters={"label": CHECKOUT_LABEL})
    if containers:
        names = " ".join(str(container.name) for container in containers)
        raise EnvironmentMissing(
            "images are in use by containers",
            found=names,
            hint=f"stop them with docker rm --force {names}, and run the same command again",
        )
    for image in daemon.client.images.list(filters={"label": f"{LABEL}.image"}):
        try:
            daemon.client.images.remove(str(image.id), force=True)
        except APIError as error:
            raise EnvironmentMissing(
                "cannot remove image", where=" ".join(image.tags) or str(image.id), found=str(error.explanation)
            ) from error
        sys.stdout.write(f"{' '.join(image.tags) or image.short_id}\n")
