"""Operations on lists of tensors."""

import torch
from hypothesis import given
from hypothesis.strategies import lists, sampled_from, tuples

from everstep.elastic.transport.tensor_lists import copy_all

TYPES = sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.int64])
SHAPES = sampled_from([(), (1,), (2, 3)])


@given(lists(tuples(TYPES, TYPES, SHAPES), max_size=6))
def test_each_source_is_copied_into_its_target_in_a_list_of_mixed_types(
    pairs: list[tuple[torch.dtype, torch.dtype, tuple[int, ...]]],
) -> None:
    targets = [torch.zeros(shape, dtype=target) for target, _, shape in pairs]
    sources = [
        torch.full(shape, number + 1, dtype=source)
        for number, (_, source, shape) in enumerate(pairs)
    ]

    copy_all(targets, sources)

    for number, ((dtype, _, shape), target) in enumerate(zip(pairs, targets, strict=True)):
        assert torch.equal(target, torch.full(shape, number + 1, dtype=dtype))
