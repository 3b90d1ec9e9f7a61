"""How torchrun finds our rendezvous: `--rdzv_backend=etcd-v3`.

torchrun looks it up in the entry-point group `torchrun.handlers`; a program that starts agents
itself calls `register()`. Apart from the handlers themselves, because it must choose between them.
"""

from collections.abc import Callable

from torch.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)

from everstep.elastic.live_agent import LiveHandler
from everstep.elastic.rendezvous import BACKEND, EtcdV3Handler


def create(parameters: RendezvousParameters) -> EtcdV3Handler:
    """Make a handler; torchrun calls this by its registry."""
    if parameters.config.get("workers") == "live":
        return LiveHandler(parameters)
    return EtcdV3Handler(parameters)


def entry_point() -> Callable[[RendezvousParameters], RendezvousHandler]:
    """What the entry-point group `torchrun.handlers` loads: a function that gives the creator."""
    return create


def register(creator: Callable[[RendezvousParameters], RendezvousHandler] = create) -> None:
    """Register `etcd-v3` in this process, in the place of the one an installed distribution announces.

    The caller's creator must win: a launcher that never meets its handler could not tell it to leave.
    """
    rendezvous_handler_registry._registry.pop(
        BACKEND, None
    )  # the registry itself refuses a second one
    rendezvous_handler_registry.register(BACKEND, creator)
