"""The handler's place in torch's registry."""

from torch.distributed.elastic.rendezvous.api import rendezvous_handler_registry

from everstep.elastic.rendezvous import BACKEND
from everstep.elastic.torchrun import register


def test_a_launcher_s_own_creator_wins_over_the_one_an_installed_distribution_announced():
    def mine(parameters):
        raise NotImplementedError

    register()
    try:
        register(mine)

        assert rendezvous_handler_registry._registry[BACKEND] is mine
    finally:
        register()
