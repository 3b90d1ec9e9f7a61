"""Registration of the rendezvous handler with torch."""

from torch.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)

from everstep.elastic.membership.rendezvous import BACKEND
from everstep.elastic.membership.torchrun import register


def test_the_handler_of_the_launcher_overrides_an_entry_point() -> None:
    def create_handler(parameters: RendezvousParameters) -> RendezvousHandler:
        raise NotImplementedError

    register()
    try:
        register(create_handler)

        assert rendezvous_handler_registry._registry[BACKEND] is create_handler
    finally:
        register()
