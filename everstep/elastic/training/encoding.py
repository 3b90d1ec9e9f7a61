"""Encoding of the states of schedulers, gradient scalers, averages and optimizers as tensors and JSON.

An encoded state may contain numbers, strings, containers of these, and tensors. No pickle: a checkpoint is on a
shared volume, and users with write access to it must not be able to run code in the training process.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from everstep.errors import EverstepError

Tensors = dict[str, torch.Tensor]
_KEY_TYPES = (str, int, float, bool, type(None))


def encode(value: object, path: str, tensors: Tensors) -> Any:  # noqa: ANN401 - JSON
    """Return a value as JSON; put its tensors into `tensors`, by their path.

    Raises:
        EverstepError: the value contains an object of a type that cannot be saved, or two tensors with one path.
    """
    if isinstance(value, torch.Tensor):
        if path in tensors:
            raise EverstepError(
                f"{path} is the path of two tensors, which cannot both be part of a checkpoint",
                "Use keys of a state_dict that differ as text and contain no dots.",
            )
        tensors[path] = value.detach()
        return {"tensor": path}
    if isinstance(value, bool | str | int | float | None):
        return value
    if isinstance(value, list):
        return [encode(item, f"{path}.{number}", tensors) for number, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": encode(list(value), path, tensors)}
    if isinstance(value, Mapping):
        return _encode_mapping(value, path, tensors)
    if isinstance(value, np.generic):
        return encode(value.item(), path, tensors)
    raise EverstepError(
        f"{path} is of type {type(value).__name__}, which cannot be part of a checkpoint",
        "A state_dict may contain numbers, strings, tensors, and lists, tuples and dicts of these.",
    )


def _encode_mapping(value: Mapping[Any, Any], path: str, tensors: Tensors) -> dict[str, Any]:
    kind = "counter" if isinstance(value, Counter) else "dict"
    pairs = []
    for key, item in value.items():
        if not isinstance(key, _KEY_TYPES):
            raise EverstepError(
                f"{path} has a key of type {type(key).__name__}, which cannot be part of a checkpoint",
                "Use strings or numbers as keys of a state_dict.",
            )
        pairs.append([key, encode(item, f"{path}.{key}", tensors)])
    return {kind: pairs}


def decode(encoded: Any, tensors: Mapping[str, torch.Tensor]) -> Any:  # noqa: ANN401 - of any type
    """Return the value that `encode` encoded, with these tensors.

    Raises:
        EverstepError: the value contains another tensor.
    """
    if isinstance(encoded, list):
        return [decode(item, tensors) for item in encoded]
    if not isinstance(encoded, dict):
        return encoded
    ((kind, content),) = encoded.items()
    if kind == "tensor":
        return _tensor(content, tensors)
    if kind == "tuple":
        return tuple(decode(content, tensors))
    pairs = {key: decode(item, tensors) for key, item in content}
    return Counter(pairs) if kind == "counter" else pairs


def count_values(encoded: Any) -> int:  # noqa: ANN401 - JSON
    """Return the number of values and keys in a value that `encode` encoded."""
    if isinstance(encoded, dict):
        encoded = list(encoded.values())
    return sum(map(count_values, encoded)) if isinstance(encoded, list) else 1


def _tensor(path: str, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    if path in tensors:
        return tensors[path]
    raise EverstepError(
        f"the saved state has a tensor {path}, and the state of this program has none",
        "Create each tensor of states before Run is created, as the program did that saved the state, and use its "
        "optimizer. Or start again: pass --fresh=WORD with a new word, or, without our trainer, another folder.",
    )
