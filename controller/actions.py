"""The plan of one reconcile pass: the new status and the actions that go with it."""

from dataclasses import dataclass
from datetime import datetime

from controller.exit_history import WorkerExit
from controller.objects import Placeholder, Pod
from controller.status import Status


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """A pod to delete.

    Attributes:
        cause: cause of the deletion, for the message of the event.
        force: True to remove the object immediately, without the kubelet's confirmation that the
            processes have ended.
    """

    pod: Pod
    cause: str
    force: bool = False


@dataclass(frozen=True, kw_only=True)
class PlaceholderRequest:
    """A placeholder to create, by its zone and its number there."""

    zone: str
    number: int


@dataclass(frozen=True, kw_only=True)
class Event:
    """A Kubernetes event about the job."""

    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan of one reconcile pass.

    Attributes:
        status: new status, written first: it must not be lost if the controller stops after
            deleting a pod.
        create_pods: indices of the workers whose pods to create.
        create_on_demand: the indices among them that run on on-demand machines.
        create_services: indices of the workers whose Services to create.
        delete_services: names of the Services to delete.
        update_bounds: pods whose annotation with the job's bounds is stale.
        create_placeholders: placeholders to create.
        delete_placeholders: placeholders to delete, before workers are created on their nodes.
        exits: exits of workers that are new in this status.
        requeue_at: time of the next pass without an event; None for the regular resync.
    """

    status: Status
    create_pods: tuple[int, ...] = ()
    create_on_demand: frozenset[int] = frozenset()
    delete_pods: tuple[Deletion, ...] = ()
    create_services: tuple[int, ...] = ()
    delete_services: tuple[str, ...] = ()
    update_bounds: tuple[Pod, ...] = ()
    create_placeholders: tuple[PlaceholderRequest, ...] = ()
    delete_placeholders: tuple[Placeholder, ...] = ()
    delete_job: bool = False
    events: tuple[Event, ...] = ()
    exits: tuple[WorkerExit, ...] = ()
    requeue_at: datetime | None = None
