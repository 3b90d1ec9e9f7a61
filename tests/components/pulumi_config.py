"""The configuration that Pulumi passes to a program."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pulumi.runtime.config import CONFIG, set_all_config


@contextmanager
def pulumi_config(values: Mapping[str, str]) -> Iterator[None]:
    """Replace the configuration during the block."""
    original = CONFIG.get()
    set_all_config(dict(values))
    try:
        yield
    finally:
        CONFIG.set(original)
