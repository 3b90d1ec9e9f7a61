"""Fixtures of the tests of the elastic library."""

from collections.abc import Iterator

import pytest

from tests.everstep.elastic.transport.process_groups import group_store


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the port of a group's store on this machine."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with group_store() as port:
        yield port
