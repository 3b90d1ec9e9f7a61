"""`up` fails if a pod in the system namespace has an image that cannot be pulled."""

from typing import Any

import pytest

from everstep.cli.engine import image_check
from everstep.cli.engine.image_check import images_not_pulled, wait_for_images
from everstep.errors import EverstepError
from everstep.progress import Silent

SPOT = "ghcr.io/everstep/spot:0.1.0"


def pod(name: str, reason: str = "", *, is_init: bool = False) -> dict[str, Any]:
    """Return a pod whose container is waiting with this reason, or running if there is none."""
    state = {"waiting": {"reason": reason}} if reason else {"running": {}}
    status = {"name": "watcher", "image": "", "state": state}
    kind = "initContainer" if is_init else "container"
    return {
        "metadata": {"name": name},
        "spec": {f"{kind}s": [{"name": "watcher", "image": SPOT}]},
        "status": {f"{kind}Statuses": [status]},
    }


class FakeClient:
    """A cluster with given pods."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self._pods = list(pods)

    def pods_of_system(self) -> list[dict[str, Any]]:
        return self._pods


@pytest.mark.parametrize("reason", sorted(image_check.NOT_PULLED))
@pytest.mark.parametrize("is_init", [False, True])
def test_every_reason_of_a_failed_pull_counts(reason: str, is_init: bool) -> None:
    pods = [
        pod("spot-1", reason, is_init=is_init),
        pod("spot-2"),
        pod("spot-3", "CrashLoopBackOff"),
    ]

    assert images_not_pulled(pods) == {SPOT: ["spot-1"]}


def test_the_error_names_image_pods_and_the_command_that_pushes() -> None:
    client: Any = FakeClient(pod("spot-1", "ErrImagePull"), pod("spot-2", "ImagePullBackOff"))

    with pytest.raises(EverstepError, match=f"nodes cannot pull {SPOT}") as error:
        image_check.check_images(client, "eks-dev", Silent())
    assert "spot-1, spot-2" in error.value.problem
    assert "everstep images push --stack eks-dev" in error.value.fix


def test_running_pods_and_pods_without_a_node_do_not_fail() -> None:
    pending_pod = {"metadata": {"name": "spot-9"}, "spec": {}, "status": {"phase": "Pending"}}
    client: Any = FakeClient(pod("spot-1"), pending_pod)

    image_check.check_images(client, "eks-dev", Silent())


def test_a_starting_container_is_waited_for_until_its_pull_fails() -> None:
    reads = iter([[pod("spot-1", "ContainerCreating")], [pod("spot-1", "ErrImagePull")]])
    pauses: list[float] = []

    assert wait_for_images(lambda: next(reads), 30, pauses.append, lambda: 0.0) == {
        SPOT: ["spot-1"]
    }
    assert len(pauses) == 1


def test_a_container_that_keeps_starting_is_waited_for_with_a_limit() -> None:
    clock = iter(range(100))

    images = wait_for_images(
        lambda: [pod("spot-1", "ContainerCreating")], 5, lambda _: None, lambda: float(next(clock))
    )

    assert images == {}
    assert next(clock) < 10
