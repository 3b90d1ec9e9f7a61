"""Samples of a map-style data set, collated and on the model's device."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import IterableDataset, default_collate

from everstep.elastic.data_order.sampler import Ids
from everstep.errors import EverstepError


class SampleLoader:
    """Loader of the samples with given indices.

    Args:
        dataset: map-style data set, or None: the indices themselves are the samples.
        collate: function that combines a list of samples into a batch; None for torch's own.
        device: device that a batch's tensors are moved to.
    """

    def __init__(
        self,
        dataset: Any,  # noqa: ANN401 - of the user
        collate: Callable[[list[Any]], Any] | None,
        device: torch.device,
    ) -> None:
        self._dataset, self._device = dataset, device
        self._collate = collate or default_collate

    def __call__(self, ids: Ids, epoch: int = 0) -> Any:  # noqa: ANN401 - as the user's data set has them
        """Return these samples as one batch."""
        del epoch  # a map-style data set has no epochs
        if self._dataset is None:
            return torch.from_numpy(ids)
        indices = ids.tolist()
        fetch = getattr(self._dataset, "__getitems__", None)
        samples = fetch(indices) if fetch else [self._dataset[index] for index in indices]
        return to_device(self._collate(samples), self._device)


def to_device(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 - of any structure
    """Return a batch with its tensors on the device; its lists, tuples and dicts are kept.

    An object with a method `to`, such as a packed sequence or a batch of graphs, is moved by it, as in Lightning and
    Accelerate.
    """
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if callable(getattr(batch, "to", None)):
        return batch.to(device)
    if isinstance(batch, Mapping):
        return {name: to_device(value, device) for name, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(item, device) for item in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(item, device) for item in batch)
    return batch


def size_of(dataset: object, dataset_size: int | None) -> int:
    """Return the number of samples.

    Raises:
        EverstepError: neither or both arguments are given, the data set is not map-style, or there are no samples.
    """
    if (dataset is None) == (dataset_size is None):
        raise EverstepError(
            "Run needs either dataset or dataset_size",
            "Pass a map-style data set, or the number of samples that your program indexes itself.",
        )
    is_indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    # torch gives an iterable-style data set a `__getitem__` that fails.
    if dataset_size is None and (not is_indexed or isinstance(dataset, IterableDataset)):
        raise EverstepError(
            f"dataset is a {type(dataset).__name__}, which has no length or cannot be indexed",
            "Pass a map-style data set: a changing group cannot share an iterable-style data set.",
        )
    size = dataset_size if dataset_size is not None else len(dataset)  # type: ignore[arg-type]
    if size < 1:
        raise EverstepError(f"the data set has {size} samples", "Pass a data set with samples.")
    return size
