"""Registration of the rendezvous with torchrun: `--rdzv_backend=etcd-v3`.

torchrun finds it in the entry-point group `torchrun.handlers`; a program that starts agents itself
calls `register()`.
"""

from collections.abc import Callable

from torch.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)

from everstep.elastic.membership.rendezvous import BACKEND, EtcdV3Handler

Creator = Callable[[RendezvousParameters], RendezvousHandler]


def entry_point() -> Creator:
    """Return the creator of the handler, as the entry-point group requires."""
    return EtcdV3Handler


def register(creator: Creator = EtcdV3Handler) -> None:
    """Register `etcd-v3` in this process, in place of an installed distribution's registration.

    The caller's creator takes precedence: without its handler a launcher could not make the node leave.
    """
    # The registry refuses a second registration.
    rendezvous_handler_registry._registry.pop(BACKEND, None)
    rendezvous_handler_registry.register(BACKEND, creator)
