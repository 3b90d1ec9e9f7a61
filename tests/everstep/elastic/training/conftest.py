"""Fixtures for the tests of training."""

import pytest

from everstep.catalog.names import AGENT_VARIABLE


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables with which an agent or torchrun starts a worker."""
    monkeypatch.delenv(AGENT_VARIABLE, raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
