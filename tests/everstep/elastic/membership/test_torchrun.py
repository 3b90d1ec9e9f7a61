"""Registration of the rendezvous handler with torch."""

import pytest
from torch.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)

from everstep.elastic.membership.rendezvous import BACKEND
from everstep.elastic.membership.torchrun import entry_point, register


def test_the_handler_of_the_launcher_overrides_an_entry_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def create_handler(parameters: RendezvousParameters) -> RendezvousHandler:
        raise NotImplementedError

    monkeypatch.setattr(rendezvous_handler_registry, "_registry", {})
    register(entry_point())

    register(create_handler)

    assert rendezvous_handler_registry._registry[BACKEND] is create_handler
