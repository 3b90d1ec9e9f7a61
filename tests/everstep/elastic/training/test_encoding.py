"""States as JSON and tensors."""

import json
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import (
    booleans,
    dictionaries,
    floats,
    integers,
    lists,
    none,
    recursive,
    text,
)

from everstep.elastic.training.encoding import Tensors, count_values, decode, encode
from everstep.errors import EverstepError

LEAVES = none() | booleans() | integers() | floats() | text(max_size=5)
VALUES = recursive(
    LEAVES,
    lambda inner: (
        lists(inner, max_size=3)
        | lists(inner, max_size=3).map(tuple)
        | dictionaries(integers() | text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_a_state_of_numbers_and_containers_is_decoded_as_it_was(value: object) -> None:
    tensors: Tensors = {}
    encoded_state = json.loads(json.dumps(encode(value, "state", tensors)))

    # Compare representations, because 1 == True == 1.0 and nan != nan.
    assert repr(decode(encoded_state, tensors)) == repr(value)
    assert not tensors


def test_tensors_are_separated_by_their_path() -> None:
    weight = torch.ones(2)
    tensors: Tensors = {}

    encoded_state = encode(
        {"a": [weight], "n": np.float32(2.5), 3: Counter({30: 1})}, "state", tensors
    )

    assert list(tensors) == ["state.a.0"]
    decoded_state = decode(encoded_state, tensors)
    assert decoded_state["a"][0].data_ptr() == weight.data_ptr(), (
        "a joiner receives the values into this tensor, not into a copy"
    )
    assert type(decoded_state["n"]) is float
    assert decoded_state["n"] == 2.5
    assert repr(decoded_state[3]) == "Counter({30: 1})", (
        "a scheduler such as MultiStepLR needs the class Counter"
    )


@pytest.mark.parametrize(
    "value",
    [
        {1: torch.ones(1), "1": torch.zeros(1)},
        {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}},
    ],
)
def test_two_tensors_with_one_path_are_an_error(value: object) -> None:
    with pytest.raises(EverstepError, match=r"^state\S+ is the path of two tensors"):
        encode(value, "state", {})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (object(), "^scheduler is of type object,"),
        (lambda: None, "^scheduler is of type function,"),
        ({(1, 2): 3}, "^scheduler has a key of type tuple,"),
        ({"a": [{1, 2}]}, r"^scheduler\.a\.0 is of type set,"),
    ],
)
def test_a_value_that_cannot_be_saved_is_an_error_with_its_path(
    value: object, problem: str
) -> None:
    with pytest.raises(EverstepError, match=problem):
        encode(value, "scheduler", {})


def test_a_saved_tensor_that_the_program_does_not_have_is_an_error_with_its_name() -> None:
    encoded = encode({"list": [torch.ones(1)]}, "state", {})

    with pytest.raises(EverstepError, match=r"the saved state has a tensor state\.list\.0, and"):
        decode(encoded, {})


def test_keys_and_values_in_all_containers_are_counted() -> None:
    encoded = encode({"a": [1, (2, torch.ones(1))], "b": {3: {}}}, "state", {})

    assert count_values(encoded) == 6, "three keys and three values"
