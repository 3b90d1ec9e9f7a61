"""A few faults on a real local cluster, with the checks of the long run: `make test-chaos SEEDS=10`."""

from pathlib import Path

import pytest

from tests.chaos.run import play
from tests.chaos.schedule import Round, ScheduledFault

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

SEED, NODES = 0, ("w0", "w1", "w2")
ROUNDS = (
    Round(
        0.8,
        (
            ScheduledFault("torn-checkpoint", NODES, at=0.0, seconds=6.0),
            ScheduledFault("cut-etcd", ("w1",), at=0.3, seconds=6.0),
        ),
    ),
    Round(
        1.3,
        (
            ScheduledFault("split", ("w2",), at=1.0, seconds=10.0),
            ScheduledFault("kill-agent", ("w1",), at=2.0, seconds=4.0),
        ),
    ),
    Round(0.5, (ScheduledFault("disk-hang", ("w2",), at=0.0, seconds=6.0),)),
)
"""Written out instead of drawn from the seed, so that a new kind of fault does not change these rounds."""


def test_a_short_schedule_of_faults_breaks_no_invariant(tmp_path: Path) -> None:
    outcome = play(tmp_path / "run", SEED, ROUNDS, NODES)

    assert not outcome.error, outcome.error
    assert outcome.violations == []
    assert sum(outcome.faults.values()) == 5, "every fault of the schedule must have begun"
    assert outcome.checked["commits"] > 0
    assert outcome.checked["steps_in_chain"] == outcome.checked["steps"]
