"""Collated samples of any structure, moved to the model's device."""

from collections import UserDict, namedtuple
from typing import Self

import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from everstep.elastic.training.samples import to_device

META = torch.device("meta")


class Encoding(UserDict[str, torch.Tensor]):
    """A mapping with a method `to`, as tokenizers return."""

    def to(self, device: torch.device) -> Self:
        return type(self)({name: part.to(device) for name, part in self.items()})


def test_an_object_that_can_move_itself_is_moved_and_keeps_its_type() -> None:
    """Otherwise the tensors of a batch of graphs would stay on the CPU."""
    moved = to_device([Encoding(ids=torch.zeros(2))], META)[0]

    assert type(moved) is Encoding
    assert moved["ids"].device == META


def test_a_packed_sequence_keeps_its_batch_sizes_on_the_cpu() -> None:
    packed = pack_sequence([torch.zeros(3), torch.zeros(1)])

    moved = to_device((packed, torch.zeros(2)), torch.device("cpu"))[0]

    assert type(moved) is PackedSequence
    assert moved.batch_sizes.tolist() == [2, 1, 1]


def test_containers_are_kept() -> None:
    pair = namedtuple("pair", ["x", "paths"])

    moved = to_device({"a": pair(torch.zeros(2), ["a"]), "b": (torch.zeros(1), 3)}, META)

    assert moved["a"].x.device == moved["b"][0].device == META
    assert (moved["a"].paths, moved["b"][1]) == (["a"], 3)
