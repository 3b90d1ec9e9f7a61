"""The verification that every sample was trained exactly once."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.elastic.data_order.sample_ledger import SampleLedger, digest
from everstep.elastic.data_order.sampler import SampleOrder
from tests.trainer.verification import run_verify
from trainer.verify import Commit, expected_samples, read, verify

PLAN = SampleOrder(samples=50, global_batch=7, epochs=3, seed=11)
RUN = {"samples": 50, "fingerprint": {"global_batch": 7, "seed": 11}}


def commits(*steps: int, skip: int = -1, repeated: int = -1) -> list[Commit]:
    """Return the ledger entries of a run; `skip` omits a step, `repeated` applies one twice."""
    ledger, checkpoints = SampleLedger(), []
    for step in range(max(steps)):
        ids = PLAN.batch(step)
        for _ in range(0 if step == skip else 2 if step == repeated else 1):
            ledger = ledger.with_step(len(ids), digest(step, ids))
        if step + 1 in steps:
            checkpoints.append(Commit(step + 1, 1, ledger.samples, ledger.digest))
    return checkpoints


def test_a_run_that_trained_every_sample_once_is_verified() -> None:
    assert verify(RUN, commits(3, 8, 20, PLAN.total_steps)) == []


@pytest.mark.parametrize("fault", [{"skip": 5}, {"repeated": 5}])
def test_a_lost_or_repeated_step_is_detected_in_every_later_commit(fault: dict[str, int]) -> None:
    faults = verify(RUN, commits(3, 8, 20, **fault))

    assert len(faults) == 2
    assert "step 8 of generation 1" in faults[0]


def test_a_late_commit_of_an_older_generation_is_detected() -> None:
    entries = commits(3, 8)
    faults = verify(RUN, [Commit(8, 2, entries[1].samples, entries[1].digest), entries[0]])

    (fault,) = faults
    assert fault.startswith("a commit follows one of a newer generation")


def test_the_program_prints_the_result_and_returns_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    lines = [
        {"step": c.step, "generation": 1, "samples": c.samples, "digest": f"{c.digest:016x}"}
        for c in commits(3, 8)
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    (tmp_path / "ledger.jsonl").write_text(text + '\n{"step": 9, "gen')
    assert len(list(read(tmp_path / "ledger.jsonl"))) == 2

    result = run_verify(tmp_path)

    assert result.returncode == 0, result.stderr
    assert "2 commits, the last at step 8, 50 samples: every sample exactly once" in result.stdout


def test_an_accepted_data_change_applies_from_its_step() -> None:
    ledger, checkpoints = SampleLedger(), []
    changed_order = SampleOrder(samples=30, global_batch=7, epochs=3, seed=11)
    for step in range(14):
        ids = (PLAN if step < 9 else changed_order).batch(step)
        ledger = ledger.with_step(len(ids), digest(step, ids))
        checkpoints.append(Commit(step + 1, 1, ledger.samples, ledger.digest))
    run_with_change = {**RUN, "data_changes": [{"step": 9, "samples": 30}]}

    assert verify(run_with_change, checkpoints) == []
    assert len(verify(RUN, checkpoints)) == 5


def history(sizes: list[int], generation: int, at: float = 0) -> list[Commit]:
    """Return the ledger entries of a run from the size of the data set in each of its steps."""
    ledger, entries = SampleLedger(), []
    for step, samples in enumerate(sizes):
        ids = SampleOrder(samples=samples, global_batch=7, epochs=9, seed=11).batch(step)
        ledger = ledger.with_step(len(ids), digest(step, ids))
        entries.append(Commit(step + 1, generation, ledger.samples, ledger.digest, at))
    return entries


@pytest.mark.parametrize("generations", [(1, 2), (0, 0)], ids=["agents", "no agents"])
@pytest.mark.parametrize("restored_step", [2, 4])
def test_a_run_that_went_back_has_two_histories_with_their_own_data(
    generations: tuple[int, int], restored_step: int
) -> None:
    """The ledger keeps the commits of the first one, with the change that the second one does not have."""
    ledger = history([50] * 4 + [30] * 5, generations[0], at=15)
    ledger += history([50] * 20, generations[1], at=25)[restored_step:]
    changes = [
        {"step": 4, "samples": 30, "generation": generations[0], "at": 10},
        {"step": restored_step, "samples": 50, "generation": generations[1], "at": 20},
    ]

    assert verify({**RUN, "data_changes": changes}, ledger) == []

    faults = verify({**RUN, "data_changes": changes[:1]}, ledger)
    assert len(faults) == 16, "the steps from 5 on of the second history"


def test_samples_of_an_abandoned_history_are_wrong_in_a_later_generation() -> None:
    ledger = history([50] * 4 + [30] * 5, generation=2)
    changes = [
        {"step": 4, "samples": 30, "generation": 1, "at": 10},
        {"step": 2, "samples": 50, "generation": 2, "at": 20},
    ]

    assert len(verify({**RUN, "data_changes": changes}, ledger)) == 5


def test_only_a_run_without_agents_may_go_back_in_one_generation() -> None:
    later_commits, earlier_commits = commits(3, 8), commits(3)

    for generation, expected in ((0, 0), (1, 1)):
        ledger = [replace(c, generation=generation) for c in later_commits + earlier_commits]
        assert len(verify(RUN, ledger)) == expected


def write_run(folder: Path, ledger: list[Commit], manifests: list[Commit]) -> None:
    (folder / "run.json").write_text(json.dumps(RUN))
    lines = [{**vars(commit), "digest": f"{commit.digest:016x}"} for commit in ledger]
    (folder / "ledger.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for commit in manifests:
        path = folder / "checkpoints" / f"step-{commit.step:08d}"
        path.mkdir(parents=True)
        extra = {"samples": commit.samples, "digest": f"{commit.digest:016x}"}
        manifest = {"step": commit.step, "generation": commit.generation, "extra": extra}
        (path / "manifest.json").write_text(json.dumps(manifest))


def test_a_missing_line_of_the_ledger_is_noticed_and_its_checkpoint_verified(
    tmp_path: Path,
) -> None:
    commit_3, commit_8 = commits(3, 8)
    write_run(tmp_path, [commit_3], [commit_3, commit_8])

    result = run_verify(tmp_path)

    assert "has no line for the checkpoint of step 8" in result.stdout
    assert result.returncode == 0, "a writer may crash between a commit and its ledger line"


def test_a_checkpoint_with_wrong_samples_is_detected_without_its_ledger_line(
    tmp_path: Path,
) -> None:
    commit_3, commit_8 = commits(3, 8)
    write_run(tmp_path, [commit_3], [Commit(8, 1, commit_8.samples, commit_8.digest + 1)])

    result = run_verify(tmp_path)

    assert result.returncode == 1
    assert "has 50 samples, but not the expected ones" in result.stdout


def test_a_run_without_commits_has_nothing_to_verify(tmp_path: Path) -> None:
    write_run(tmp_path, [], [])

    result = run_verify(tmp_path)

    assert result.returncode == 2
    assert "nothing to verify" in result.stderr


def line(**values: object) -> bytes:
    """Return a line of the ledger with some values of another kind."""
    return json.dumps(
        {"step": 3, "generation": 1, "samples": 21, "digest": "00", **values}
    ).encode()


@pytest.mark.parametrize(
    "damage",
    [
        *(b'\xff\xfe{"step"', b"null", b"[]", b'{"step": 3}', b'{"step": []}', b"\0\0"),
        *(line(step=-1), line(step=2**63), line(step=math.inf), line(generation=-1)),
        *(line(samples=-21), line(digest="-1"), line(digest="1" * 17), b"[" * 100_000),
    ],
)
def test_a_damaged_line_of_the_ledger_costs_only_that_line(tmp_path: Path, damage: bytes) -> None:
    """Otherwise it would end the program with a traceback and exit code 1, which means that a commit disagrees."""
    write_run(tmp_path, commits(3, 8), [])
    first, last = (tmp_path / "ledger.jsonl").read_bytes().splitlines()
    (tmp_path / "ledger.jsonl").write_bytes(b"\n".join([first, damage, last]))

    result = run_verify(tmp_path)

    assert result.returncode == 0, result.stderr
    assert "2 commits, the last at step 8" in result.stdout
    assert "note: line 2 of ledger.jsonl is incomplete or damaged" in result.stdout


def test_a_damaged_step_costs_no_memory_and_names_its_line() -> None:
    """The expected samples of every earlier step were computed and kept: gigabytes for a changed digit."""
    first, last = commits(3, 8)
    damaged_commit = replace(first, step=900_000_000)

    faults = verify(RUN, [damaged_commit, last])

    assert faults[0] == ("step 900000000 of generation 1 has 21 samples instead of 5625000000")


@given(
    steps=st.integers(0, 60),
    batch=st.integers(1, 9),
    sizes=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=3),
)
def test_the_number_of_samples_is_the_sum_over_all_steps(
    steps: int, batch: int, sizes: list[tuple[int, int]]
) -> None:
    changes = [{"step": step, "samples": samples} for step, samples in sizes]
    run = {"samples": 20, "fingerprint": {"global_batch": batch}, "data_changes": changes}

    expected = 0
    for step in range(steps):
        samples = [20, *(size for first, size in sizes if first <= step)][-1]
        expected += min(batch, samples - step % -(-samples // batch) * batch)

    assert expected_samples(run, steps) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(None, "{", "[]", "{}", '{"samples": 50, "fingerprint": {"seed": 11}}'),
        '{"samples": 0, "fingerprint": {"global_batch": 7, "seed": 11}}',
        '{"samples": 50, "fingerprint": {"global_batch": 0, "seed": 11}}',
        '{"samples": 50, "fingerprint": {"global_batch": 7, "seed": 1e999}}',
        '{"samples": 50, "fingerprint": {"global_batch": 7, "seed": 11}, "data_changes": [{}]}',
        json.dumps({**RUN, "data_changes": [{"step": 1, "samples": 9, "generation": -1}]}),
    ],
)
def test_a_run_without_its_settings_cannot_be_verified(tmp_path: Path, text: str | None) -> None:
    write_run(tmp_path, commits(3, 8), [])
    (tmp_path / "run.json").unlink()
    if text is not None:
        (tmp_path / "run.json").write_text(text)

    result = run_verify(tmp_path)

    assert result.returncode == 2
    assert "run.json cannot be read" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_damaged_result_is_ignored(tmp_path: Path) -> None:
    write_run(tmp_path, commits(3, 8), [])
    (tmp_path / "result.json").write_text("[]")

    assert run_verify(tmp_path).returncode == 0


def test_a_ledger_that_lacks_the_end_of_a_finished_run_is_reported(tmp_path: Path) -> None:
    write_run(tmp_path, commits(3, 8), [])
    (tmp_path / "result.json").write_text(json.dumps({"steps": 20}))

    result = run_verify(tmp_path)

    assert result.returncode == 1
    assert "the run ended after 20 steps, but its last commit is at step 8" in result.stdout
