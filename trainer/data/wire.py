"""What a worker and its reading processes say to each other.

Tasks go down a process's standard input, answers come up its standard output, both as records of a
fixed size; pixels go through memory that both map. The number of slots bounds what is under way, so
that neither pipe can ever fill up and nobody waits for a pipe: there can be no deadlock.
"""

import json
import struct
from dataclasses import asdict, dataclass

PIPE_BYTES = 65536  # what a Linux pipe holds unless told otherwise

TASK = struct.Struct("<IIQQ")  # slot, part (its place in PARTS), sample, chance
ANSWER = struct.Struct("<II")  # slot, and whether it holds GOOD pixels or the text of an error
GOOD, BAD = 0, 1

MOST_SLOTS = PIPE_BYTES // TASK.size


@dataclass(frozen=True, kw_only=True)
class Opening:
    """What a reading process is told when it starts.

    Attributes:
        folder: of the data.
        size: side of an image, pixels.
        identities: of the parts, in the order of PARTS, as the worker sees them.
        memory: file descriptor of the shared memory.
        slots: how many images it holds.
    """

    folder: str
    size: int
    identities: tuple[str, ...]
    memory: int
    slots: int

    @property
    def slot_bytes(self) -> int:
        """Of one image."""
        return self.size * self.size * 3

    def to_argument(self) -> str:
        """As one word of a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, argument: str) -> "Opening":
        """The inverse of `to_argument`."""
        read = json.loads(argument)
        return cls(**{**read, "identities": tuple(read["identities"])})


def to_slot(text: str, slot_bytes: int) -> bytes:
    """An error's text as a slot's content: UTF-8, ended by a zero byte where it is shorter."""
    return text.encode(errors="replace")[: slot_bytes - 1] + b"\0"


def from_slot(content: bytes) -> str:
    """The inverse of `to_slot`."""
    return content.partition(b"\0")[0].decode(errors="replace")
