"""The seeds of random layers and of random augmentations."""

import random

import numpy as np
import torch

from everstep.elastic.training.session import _seed_generators


def test_torch_draws_the_same_numbers_as_after_manual_seed() -> None:
    torch.manual_seed(7)
    expected = torch.rand(4)

    _seed_generators(7, torch.device("cpu"))

    assert torch.equal(torch.rand(4), expected)


def test_random_numbers_of_python_and_numpy_depend_only_on_the_seed() -> None:
    draws = []
    for seed in (2**63 - 1, 7, 2**63 - 1):
        _seed_generators(seed, torch.device("cpu"))
        draws.append((random.random(), np.random.rand()))

    assert draws[0] == draws[2]
    assert draws[0][0] != draws[1][0]
    assert draws[0][1] != draws[1][1]
