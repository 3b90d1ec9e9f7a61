"""The format of a state: safetensors, written and read without a second copy in memory.

Why not safetensors' own `save_file`: it copies every tensor again and holds the GIL while it
copies and writes, so that a training step would wait for the disk. And the file would have to be read back
for its checksum.
"""

import itertools
import json
import math
from collections.abc import Iterator

import numpy as np
import torch

from everstep.errors import EverstepError

Tensors = dict[str, torch.Tensor]
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}
INTEGER_TYPES = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""Integer types by size in bytes; numpy supports all of them, unlike bfloat16."""


class EncodedState:
    """The bytes of a state's file, in parts; they refer to the tensors' memory.

    Attributes:
        size: number of bytes.

    Raises:
        EverstepError: a tensor has a type that cannot be saved.
    """

    def __init__(self, state: Tensors) -> None:
        # The tensors with the largest elements come first, so that all tensors are aligned.
        self._ordered = sorted(state.items(), key=lambda item: -item[1].element_size())
        header, offset = {}, 0
        for name, tensor in self._ordered:
            if tensor.dtype not in _NAMES:
                raise EverstepError(
                    f"the tensor {name} is of type {tensor.dtype}, which cannot be part of a checkpoint",
                    "Convert it to another type, or register the buffer with persistent=False.",
                )
            end = offset + tensor.numel() * tensor.element_size()
            header[name] = {
                "dtype": _NAMES[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [offset, end],
            }
            offset = end
        encoded = json.dumps(header).encode()
        self._header = encoded + b" " * (-len(encoded) % 8)
        self.size = 8 + len(self._header) + offset

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield the parts: the header's size, the header, and the values of each tensor."""
        beginning = (len(self._header).to_bytes(8, "little"), self._header)
        return itertools.chain(beginning, (_bytes(tensor) for _, tensor in self._ordered))


def decode(content: bytearray) -> Tensors:
    """Return the tensors of a file; they refer to `content`."""
    first = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:first])
    return {
        name: _tensor(content, first + entry["data_offsets"][0], entry)
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _tensor(content: bytearray, offset: int, entry: dict[str, object]) -> torch.Tensor:
    dtype, shape = _TYPES[str(entry["dtype"])], torch.Size(entry["shape"])  # type: ignore[arg-type]
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(content, dtype=dtype, count=count, offset=offset).reshape(shape)


def _bytes(tensor: torch.Tensor) -> memoryview:
    """Return a tensor's values in row-major order, regardless of its memory layout."""
    # numpy makes the copy, if one is needed: torch would start additional threads for this thread.
    values = tensor.detach().view(INTEGER_TYPES[tensor.element_size()]).numpy()
    return np.ascontiguousarray(values).data.cast("B") if values.size else memoryview(b"")
