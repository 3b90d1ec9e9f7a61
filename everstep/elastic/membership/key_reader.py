"""A reader of a run's keys, which logs values that the agent cannot read.

An unreadable value is logged once, and again only after the key was readable or absent. `run_keys` decides what the
agent does without the value.
"""

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from everstep.elastic.membership.etcd_client import KeyValue
from everstep.elastic.membership.key_values import UnreadableKeyError

log = logging.getLogger(__name__)

T = TypeVar("T")


class KeyReader:
    """Reader of keys that remembers which of them are unreadable. For one thread at a time."""

    def __init__(self) -> None:
        self._unreadable_keys: set[str] = set()

    def read(self, entry: KeyValue, parse: Callable[[KeyValue], T], effect: str) -> T | None:
        """Return the content of a key; None if it cannot be read.

        Args:
            entry: the key.
            parse: function that returns the content, or raises an UnreadableKeyError.
            effect: effect of an unreadable value, for the log.
        """
        try:
            content = parse(entry)
        except UnreadableKeyError as error:
            if entry.key not in self._unreadable_keys:
                self._unreadable_keys.add(entry.key)
                log.error("%s: %s", effect, error)
            return None
        if entry.key in self._unreadable_keys:
            self.forget(entry.key)
            log.warning("the key %s can be read again", entry.key)
        return content

    def is_unreadable(self, key: str) -> bool:
        """Return True if the last value of a key could not be read."""
        return key in self._unreadable_keys

    def forget(self, key: str) -> None:
        """Record that a key was removed."""
        self._unreadable_keys.discard(key)

    def keep(self, keys: Collection[str]) -> None:
        """Record that no other keys exist."""
        self._unreadable_keys.intersection_update(keys)
