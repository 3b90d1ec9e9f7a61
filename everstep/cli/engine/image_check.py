"""The check after `up` that nodes can pull the images of the programs that Pulumi does not wait for.

Pulumi does not wait for DaemonSets, since spot nodes join and leave. Without this check a spot watcher whose image does
not exist would stay in ImagePullBackOff behind a successful `up`, and no interruption would be noticed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from everstep.cli.kubernetes_client import KubernetesClient
from everstep.errors import EverstepError
from everstep.progress import Progress

NOT_PULLED = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
"""Reasons of the kubelet for a container whose image cannot be pulled."""

STARTING = frozenset({"ContainerCreating", "PodInitializing"})
WAIT_SECONDS = 30.0  # time for pods that a node is starting
POLL_SECONDS = 1.0


def check_images(client: KubernetesClient, stack: str, progress: Progress) -> None:
    """Check that no pod of the stack's programs waits for an image that cannot be pulled.

    Raises:
        EverstepError: an image cannot be pulled; the error names the pods that wait for it.
    """
    with progress.step("Checking that nodes can pull the images"):
        pods_by_image = wait_for_images(client.pods_of_system)
    if not pods_by_image:
        return
    image_list = "\n".join(
        f"{image}: {', '.join(pods)}" for image, pods in sorted(pods_by_image.items())
    )
    raise EverstepError(
        f"nodes cannot pull {', '.join(sorted(pods_by_image))}, so that these pods do not start:\n{image_list}",
        f"Push the images of the stack: everstep images push --stack {stack}; or correct their names "
        "in its file, then run `everstep up` again.",
    )


def wait_for_images(
    pods: Callable[[], Sequence[Mapping[str, Any]]],
    seconds: float = WAIT_SECONDS,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, list[str]]:
    """Return the images that cannot be pulled and their pods; wait while containers are starting.

    Args:
        pods: function that reads the current pods.
        seconds: maximum time to wait.
        pause: function that waits between two reads.
        now: clock, in seconds.
    """
    deadline = now() + seconds
    while True:
        observed = pods()
        pods_by_image = images_not_pulled(observed)
        is_starting = any(reason in STARTING for _, _, reason in _waiting_containers(observed))
        if pods_by_image or not is_starting or now() > deadline:
            return pods_by_image
        pause(POLL_SECONDS)


def images_not_pulled(pods: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the images that nodes cannot pull, and the pods that wait for them."""
    pods_by_image: dict[str, list[str]] = {}
    for pod, image, reason in _waiting_containers(pods):
        if reason in NOT_PULLED:
            pods_by_image.setdefault(image, []).append(pod)
    return pods_by_image


def _waiting_containers(pods: Iterable[Mapping[str, Any]]) -> Iterable[tuple[str, str, str]]:
    """Yield pod, image and reason of each container that waits."""
    for pod in pods:
        status, spec = pod.get("status") or {}, pod.get("spec") or {}
        containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
        images = {container["name"]: container["image"] for container in containers}
        for kind in ("initContainerStatuses", "containerStatuses"):
            for container_status in status.get(kind) or ():
                reason = (container_status.get("state", {}).get("waiting") or {}).get("reason", "")
                if reason:
                    yield (
                        pod["metadata"]["name"],
                        images.get(container_status["name"], container_status["image"]),
                        reason,
                    )
