"""The checker finds each class of violation in a corrupted history, and none in a correct one."""

import ast
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.chaos import checker
from tests.chaos.correct_history import (
    Entry,
    counts,
    edit,
    weights,
    write_checkpoint,
    write_history,
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Write a correct history."""
    write_history(tmp_path)
    return tmp_path


def journal(run: Path, worker: str = "w0") -> Path:
    return run / "run" / "journal" / f"{worker}.jsonl"


def change_entry(
    path: Path, change: Entry, from_end: int = 0, match: Callable[[Entry], bool] = lambda _: True
) -> None:
    """Change fields of a matching entry; `from_end` is its place among them, 0 for the last."""

    def replace_entry(lines: list[Entry]) -> list[Entry]:
        matches = [index for index, line in enumerate(lines) if match(line)]
        index = matches[-1 - from_end]
        return [{**line, **change} if n == index else line for n, line in enumerate(lines)]

    edit(path, replace_entry)


def is_kind(kind: str) -> Callable[[Entry], bool]:
    return lambda line: line.get("kind") == kind


def details(run: Path, kind: str) -> list[str]:
    return [violation.detail for violation in checker.check(run) if violation.kind == kind]


def kinds(run: Path) -> set[str]:
    return {violation.kind for violation in checker.check(run)}


def test_a_correct_history_has_no_violation(run: Path) -> None:
    assert checker.check(run) == []
    assert checker.summary(run) == {
        "commits": 4,
        "generations": 2,
        "applied": 30,
        "restores": 1,
        "steps": 10,
        "steps_in_chain": 10,
    }
    assert checker.recoveries(run) == [(["kill-all"], 8.0)]


def test_a_sample_that_was_applied_twice_is_found(run: Path) -> None:
    wrong_counts = counts(9)
    wrong_counts[5] += 1
    write_checkpoint(run, 9, 2, counts=wrong_counts)

    assert "samples" in kinds(run)


def test_a_sample_that_was_left_out_is_found(run: Path) -> None:
    wrong_counts = counts(10)
    wrong_counts[0] -= 1
    write_checkpoint(run, 10, 2, counts=wrong_counts)

    assert "samples" in kinds(run)


def test_a_share_that_was_left_out_of_a_step_is_found(run: Path) -> None:
    wrong_counts = counts(10)
    wrong_counts[40:50] -= (
        1  # samples of the partial epoch: each count is plausible, only their sum is wrong
    )
    write_checkpoint(run, 10, 2, counts=wrong_counts)

    assert "samples" in kinds(run)


def test_a_ledger_with_a_wrong_number_of_samples_is_found(run: Path) -> None:
    change_entry(run / "run" / "ledger.jsonl", {"samples": 1})

    assert kinds(run) == {"ledger"}


def test_a_manifest_with_a_wrong_number_of_samples_is_found(run: Path) -> None:
    path = run / "run" / "checkpoints" / "step-00000009" / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "extra": {"samples": 1}}))

    assert kinds(run) == {"ledger"}


@pytest.mark.parametrize("change", [{"step": 8}, {"agreed_generation": 1}])
def test_a_commit_that_goes_backwards_is_found(run: Path, change: Entry) -> None:
    def change_lines(lines: list[Entry]) -> list[Entry]:
        return [*lines[:-1], {**lines[-1], "value": {**lines[-1]["value"], **change}}]

    edit(run / "etcd.jsonl", change_lines)

    assert "commits advance" in kinds(run)


def test_a_commit_of_a_past_generation_is_found(run: Path) -> None:
    def change_lines(lines: list[Entry]) -> list[Entry]:
        return [*lines[:-1], {**lines[-1], "value": {**lines[-1]["value"], "generation": 1}}]

    edit(run / "etcd.jsonl", change_lines)

    assert kinds(run) == {"commits fenced"}


def test_a_generation_whose_number_does_not_grow_is_found(run: Path) -> None:
    change_entry(run / "etcd.jsonl", {"value": {"number": 3}}, from_end=5)

    assert "generations grow" in kinds(run)


def test_a_generation_that_replaces_another_with_the_same_number_is_found(run: Path) -> None:
    def change_lines(lines: list[Entry]) -> list[Entry]:
        return [
            lines[0],
            {**lines[0], "value": {**lines[0]["value"], "members": ["x"]}},
            *lines[1:],
        ]

    edit(run / "etcd.jsonl", change_lines)

    assert kinds(run) == {"generations grow"}


@pytest.mark.parametrize(
    ("fenced", "violations"),
    [("w1-1", set()), ("x", {"generations grow"})],
    ids=["member", "other"],
)
def test_a_generation_may_be_changed_only_to_fence_a_member(
    run: Path, fenced: str, violations: set[str]
) -> None:
    def change_lines(lines: list[Entry]) -> list[Entry]:
        value = {**lines[0]["value"], "fenced": [fenced]}
        return [*lines[:2], {**lines[0], "value": value}, *lines[2:]]

    edit(run / "etcd.jsonl", change_lines)

    assert kinds(run) == violations


def test_a_generation_that_begins_before_the_last_commit_is_found(run: Path) -> None:
    for worker in ("w0", "w1"):
        change_entry(journal(run, worker), {"step": 5}, match=is_kind("generation"))

    assert "commits stay" in kinds(run)


@pytest.mark.parametrize("damage", ["removed", "torn", "changed", "renamed", "older generation"])
def test_a_missing_or_damaged_committed_checkpoint_is_found(run: Path, damage: str) -> None:
    folder = run / "run" / "checkpoints" / "step-00000009"
    state = folder / "state.safetensors"
    if damage == "removed":
        shutil.rmtree(folder)
    elif damage == "torn":
        state.write_bytes(state.read_bytes()[:-4])
    elif damage == "changed":
        state.write_bytes(state.read_bytes()[:-1] + b"\x01")
    elif damage == "renamed":
        folder.rename(folder.with_name("step-00000008"))
    else:
        write_checkpoint(run, 9, generation=1)

    assert kinds(run) == {"commits stay"}


@pytest.mark.parametrize(
    ("renamed", "violations"),
    [(False, set()), (True, {"commits stay"})],
    ids=["not renamed", "renamed"],
)
def test_a_checkpoint_may_be_missing_only_if_its_writer_did_not_rename_it_and_a_group_followed(
    run: Path, renamed: bool, violations: set[str]
) -> None:
    def change_lines(lines: list[Entry]) -> list[Entry]:
        value = {**lines[-1]["value"], "generation": 3, "agreed_generation": 3}
        group = {**generation(3, 10), "value": {"number": 3, "members": ["w1-2"]}}
        return [*lines[:-1], group, {**lines[-1], "revision": 11, "value": value}]

    edit(run / "etcd.jsonl", change_lines)
    write_checkpoint(run, 10, 3)
    shutil.rmtree(run / "run" / "checkpoints" / "step-00000009")
    later = [{"kind": "generation", "generation": 3, "step": 9, "world_size": 1}]
    line = {"kind": "checkpoint", "step": 9}
    for worker in ("w0", "w1"):
        edit(
            journal(run, worker),
            lambda lines: [*lines[:-1], *([line] if renamed else []), *later, lines[-1]],
        )

    assert kinds(run) == violations


def test_a_committed_state_that_the_final_history_does_not_contain_is_found(run: Path) -> None:
    write_checkpoint(run, 6, 1, weights=weights(7))
    produced_state = {"after": checker.History(run).checkpoints[6].digest}
    change_entry(
        journal(run, "w1"), produced_state, match=lambda line: line["step"] == 6 and "after" in line
    )

    assert details(run, "one history") == [
        "the committed state of step 6 is not in the final history"
    ]


def test_a_last_committed_state_that_no_step_has_produced_is_found(run: Path) -> None:
    write_checkpoint(run, 10, 2, weights=weights(7))

    assert kinds(run) == {"one history"}


def test_workers_that_begin_a_generation_at_different_steps_are_found(run: Path) -> None:
    change_entry(journal(run, "w1"), {"step": 7}, match=is_kind("generation"))

    assert kinds(run) == {"one start"}


@pytest.mark.parametrize("state_name", ["before", "after"])
def test_a_step_with_unequal_states_is_found(run: Path, state_name: str) -> None:
    change_entry(journal(run, "w1"), {state_name: "0"}, from_end=1, match=is_kind("applied"))

    assert "equal states" in kinds(run)


def test_a_step_that_was_applied_twice_is_found(run: Path) -> None:
    edit(journal(run), lambda lines: [*lines, lines[-1]])

    assert kinds(run) == {"consecutive steps"}


def test_a_step_that_was_left_out_is_found(run: Path) -> None:
    edit(journal(run), lambda lines: [*lines[:-2], lines[-1]])

    assert kinds(run) == {"consecutive steps"}


def test_a_state_that_no_step_has_produced_is_found(run: Path) -> None:
    for worker in ("w0", "w1"):
        change_entry(journal(run, worker), {"before": "0"}, from_end=3, match=is_kind("applied"))

    assert "known origin" in kinds(run)


def test_a_torn_checkpoint_that_was_restored_is_found(run: Path) -> None:
    state = run / "run" / "checkpoints" / "step-00000006" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-4])

    assert "complete restores" in kinds(run)


def test_a_restore_counts_for_the_next_generation_only(run: Path) -> None:
    later = {"kind": "generation", "generation": 3, "step": 10}
    edit(journal(run), lambda lines: [*lines, later])

    assert checker.summary(run)["restores"] == 1


def test_a_restored_checkpoint_with_different_content_is_found(run: Path) -> None:
    write_checkpoint(run, 6, 1, weights=np.ones(8, np.float32))

    assert "complete restores" in kinds(run)


def test_a_group_that_does_not_form_again_within_the_bound_is_found(run: Path) -> None:
    change_entry(
        run / "faults.jsonl", {"at": 99.0}, match=lambda line: line["event"] == "recovered"
    )

    assert kinds(run) == {"progress"}


def test_a_group_that_never_forms_again_is_found(run: Path) -> None:
    edit(run / "faults.jsonl", lambda lines: [e for e in lines if e["event"] != "recovered"])

    assert kinds(run) == {"progress"}


def test_a_run_that_was_ended_by_a_fault_is_found(run: Path) -> None:
    end_entry = {"key": "ended", "revision": 20, "value": {"finished": False, "reason": "-"}}
    edit(run / "etcd.jsonl", lambda lines: [*lines, end_entry])

    assert kinds(run) == {"run continues"}


def test_a_drained_node_that_exits_with_an_error_is_found(run: Path) -> None:
    change_entry(run / "faults.jsonl", {"code": 1})

    assert kinds(run) == {"run continues"}


def test_a_node_that_is_drained_during_the_run_may_be_killed(run: Path) -> None:
    killed = {"at": 11.0, "event": "left", "target": "w0", "code": -9}
    edit(run / "faults.jsonl", lambda lines: [*lines[:1], killed, *lines[1:]])

    assert kinds(run) == set()


def test_a_run_that_never_drained_its_nodes_has_no_exit_codes_to_check(run: Path) -> None:
    change_entry(run / "faults.jsonl", {"code": -1})
    edit(run / "faults.jsonl", lambda lines: [e for e in lines if e["event"] != "drain_all"])

    assert kinds(run) == set()


def test_a_last_step_that_a_drain_of_all_nodes_did_not_save_is_found(run: Path) -> None:
    edit(run / "etcd.jsonl", lambda lines: lines[:-1])

    assert "run continues" in kinds(run)


def test_a_record_with_a_gap_is_found(run: Path) -> None:
    gap = {"key": "gap", "revision": 20, "value": None}
    edit(run / "etcd.jsonl", lambda lines: [*lines, gap])

    assert kinds(run) == {"record"}


@pytest.mark.parametrize("name", ["faults.jsonl", "etcd.jsonl"])
def test_a_run_without_a_record_is_refused(run: Path, name: str) -> None:
    (run / name).unlink()

    with pytest.raises(FileNotFoundError, match=name):
        checker.check(run)


def test_a_torn_last_line_of_a_journal_is_skipped(run: Path) -> None:
    with journal(run).open("a") as file:
        file.write('{"kind": "applied", "st')

    assert checker.check(run) == []


def test_the_checker_imports_the_standard_library_and_numpy_only() -> None:
    modules = set()
    for node in ast.walk(ast.parse(Path(checker.__file__).read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add((node.module or "").partition(".")[0])

    assert "numpy" in modules
    assert modules <= {*sys.stdlib_module_names, "numpy"}


def restore_etcd(run: Path, revision: int, *later: Entry) -> None:
    """Restore etcd to a revision at the end of its history, and add changes."""
    marker: Entry = {"key": "restored", "revision": revision, "value": None}
    edit(run / "etcd.jsonl", lambda lines: [*lines, marker, *later])


def generation(number: int, revision: int) -> Entry:
    value = {"number": number, "members": ["w0-3", "w1-3"]}
    return {"key": "generation", "revision": revision, "value": value}


def commit(step: int, generation: int, revision: int) -> Entry:
    value = {"agreed_generation": generation, "step": step, "generation": generation}
    return {"key": "committed", "revision": revision, "value": value}


def test_a_restored_etcd_may_repeat_lost_changes(run: Path) -> None:
    restore_etcd(run, 4, generation(3, 9), commit(10, 3, 10))
    write_checkpoint(run, 10, 3)

    assert kinds(run) == set()


def test_changes_that_are_recorded_again_after_a_restore_are_correct(run: Path) -> None:
    restore_etcd(run, 1, *checker.History(run).etcd)

    assert kinds(run) == set()


def test_a_restored_etcd_that_reuses_a_number_is_found(run: Path) -> None:
    recorded_again = checker.History(run).etcd[0]
    restore_etcd(run, 1, recorded_again, generation(2, 9))

    assert "generations grow" in kinds(run)


def test_a_commit_of_a_generation_that_a_restored_etcd_has_lost_is_found(run: Path) -> None:
    restore_etcd(run, 4, commit(10, 2, 9))

    assert "commits fenced" in kinds(run)


def test_a_commit_before_the_commits_of_a_restored_etcd_is_found(run: Path) -> None:
    restore_etcd(run, 4, generation(3, 9), commit(2, 3, 10))

    assert "commits advance" in kinds(run)
