"""Protocol between a worker and its reader processes.

Tasks are sent to a process's standard input and responses to its standard output, both as records of a
fixed size; pixels are written to shared memory. The number of slots limits the pending tasks, so that
neither pipe can fill up and no process blocks on a pipe: a deadlock is impossible.
"""

import json
import struct
from dataclasses import asdict, dataclass

PIPE_BYTES = 65536  # a Linux pipe's default capacity

TASK = struct.Struct("<IIQQ")  # slot, split (its index in SPLITS), sample, random word
RESPONSE = struct.Struct("<II")  # slot, and GOOD for pixels in it, BAD for the text of an error
GOOD, BAD = 0, 1

MAX_SLOTS = PIPE_BYTES // TASK.size


@dataclass(frozen=True, kw_only=True)
class ReaderArguments:
    """Arguments of a reader process.

    Attributes:
        folder: folder of the data.
        store: address of the shards that the folder does not have yet; empty if it has all.
        size: side of an image, pixels.
        identities: the worker's identities of the splits, in the order of SPLITS.
        memory: file descriptor of the shared memory.
        slots: number of images that fit into the memory.
    """

    folder: str
    store: str = ""
    size: int
    identities: tuple[str, ...]
    memory: int
    slots: int

    @property
    def slot_bytes(self) -> int:
        """Size of one image in bytes."""
        return self.size * self.size * 3

    def to_argument(self) -> str:
        """Encode as one command-line argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, argument: str) -> "ReaderArguments":
        """Decode the result of `to_argument`."""
        fields = json.loads(argument)
        return cls(**{**fields, "identities": tuple(fields["identities"])})


def to_slot(text: str, slot_bytes: int) -> bytes:
    """Encode an error message as a slot's content: UTF-8, truncated to the slot, zero-terminated."""
    return text.encode(errors="replace")[: slot_bytes - 1] + b"\0"


def from_slot(content: bytes) -> str:
    """Decode the result of `to_slot`."""
    return content.partition(b"\0")[0].decode(errors="replace")
