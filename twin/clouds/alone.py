"""Refuses a write beside another one, to what a service takes only one at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from twin.clouds.errors import CloudError
from twin.clouds.model import Inputs, ResourceType
from twin.clouds.patience import Patience

HOLD_SECONDS = 0.3


class Alone:
    """The writes of one provider that must be alone. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    @contextmanager
    def held(self, kind: ResourceType, inputs: Inputs, patience: Patience) -> Iterator[None]:
        """Hold what a write is about while the block runs.

        The write is held for a moment, or two that the program did not order would often miss each
        other, and pass here what fails in the cloud.

        Raises:
            CloudError: another write to the same is under way.
        """
        key = kind.alone(inputs) if kind.alone else ""
        if not key:
            yield
            return
        with self._lock:
            if key in self._busy:
                said = f"{key} is being written already; chain the writes"
                raise CloudError(kind.alone_code, said)
            self._busy.add(key)
        try:
            patience.pause(HOLD_SECONDS)
            yield
        finally:
            with self._lock:
                self._busy.discard(key)
