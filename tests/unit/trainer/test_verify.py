import json
import subprocess
import sys

import pytest

from everstep.elastic.ledger import Account, digest
from everstep.elastic.sampler import Plan
from trainer.verify import Commit, read, verify

PLAN = Plan(samples=50, global_batch=7, epochs=3, seed=11)
RUN = {"samples": 50, "fingerprint": {"global_batch": 7, "seed": 11}}


def commits(*steps: int, skip: int = -1, twice: int = -1) -> list[Commit]:
    """What a trainer would write after these steps; one step left out or applied twice on demand."""
    account, found = Account(), []
    for step in range(max(steps)):
        ids = PLAN.batch(step)
        for _ in range(0 if step == skip else 2 if step == twice else 1):
            account = account.plus(len(ids), digest(step, ids))
        if step + 1 in steps:
            found.append(Commit(step + 1, 1, account.samples, account.digest))
    return found


def test_a_run_that_trained_every_sample_once_agrees():
    assert verify(RUN, commits(3, 8, 20, PLAN.total_steps)) == []


@pytest.mark.parametrize("fault", [{"skip": 5}, {"twice": 5}])
def test_a_lost_or_a_doubled_step_is_found_in_every_commit_after_it(fault):
    faults = verify(RUN, commits(3, 8, 20, **fault))

    assert len(faults) == 2
    assert "step 8 of generation 1" in faults[0]


def test_an_older_generation_s_late_commit_is_found():
    late = commits(3, 8)
    found = verify(RUN, [Commit(8, 2, late[1].samples, late[1].digest), late[0]])

    assert found == ["a commit of an older generation came after one of a newer"]


def test_the_program_says_so_and_its_exit_code_too(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    lines = [
        {"step": c.step, "generation": 1, "samples": c.samples, "digest": f"{c.digest:016x}"}
        for c in commits(3, 8)
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "ledger.jsonl").write_text(text + '\n{"step": 9, "gen')
    assert len(list(read(tmp_path / "ledger.jsonl"))) == 2

    ended = subprocess.run(
        [sys.executable, "-m", "trainer.verify", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stderr
    assert "2 commits, the last of step 8, 50 samples: every sample exactly once" in ended.stdout


def test_data_that_were_accepted_on_the_way_are_reckoned_with_from_their_step_on():
    account, found = Account(), []
    other = Plan(samples=30, global_batch=7, epochs=3, seed=11)
    for step in range(14):
        ids = (PLAN if step < 9 else other).batch(step)
        account = account.plus(len(ids), digest(step, ids))
        found.append(Commit(step + 1, 1, account.samples, account.digest))
    changed = {**RUN, "data_changes": [{"step": 9, "samples": 30}]}

    assert verify(changed, found) == []
    assert len(verify(RUN, found)) == 5
