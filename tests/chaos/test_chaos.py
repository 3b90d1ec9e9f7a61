"""A few faults on a real local cluster, with the checks of the long run: `make test-chaos SEEDS=10`."""

from pathlib import Path

import pytest

from tests.chaos.run import play
from tests.chaos.schedule import schedule

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

SEED, FAULTS, NODES = 0, 5, ("w0", "w1", "w2")


def test_a_short_schedule_of_faults_breaks_no_invariant(tmp_path: Path) -> None:
    outcome = play(tmp_path / "run", SEED, schedule(SEED, FAULTS, nodes=NODES), NODES)

    assert not outcome.error, outcome.error
    assert outcome.violations == []
    assert sum(outcome.faults.values()) == FAULTS, "every fault of the schedule must have begun"
    assert outcome.covered["commits"] > 0
    assert outcome.covered["steps_in_chain"] == outcome.covered["steps"]
