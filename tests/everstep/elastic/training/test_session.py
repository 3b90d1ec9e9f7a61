"""The seeds of random layers."""

import torch

from everstep.elastic.training.session import _seed_random_layers


def test_random_layers_draw_as_after_a_manual_seed() -> None:
    torch.manual_seed(7)
    expected = torch.rand(4)

    _seed_random_layers(7, torch.device("cpu"))

    assert torch.equal(torch.rand(4), expected)
