"""Nodes with a complete state when each worker has one shard of it."""

from everstep.elastic.recovery.sharded_worker import reports_of_shard
from everstep.elastic.recovery.state_machine import StateReport, StepProgress, plan_copy


def report(step: int, shard: int) -> StateReport:
    return StateReport(StepProgress(1, step), checksums=(10 * step + shard,))


def test_the_nodes_report_their_own_shard() -> None:
    reports = (report(5, 0), report(5, 1), report(4, 0), report(4, 1))

    assert reports_of_shard(reports, 2, 0) == (report(5, 0), report(4, 0))
    assert reports_of_shard(reports, 2, 1) == (report(5, 1), report(4, 1))


def test_a_node_whose_shards_are_of_different_steps_has_no_state() -> None:
    """Its worker that is ahead must not be the source of one shard while the other one is a step behind."""
    reports = (report(6, 0), report(5, 1), report(5, 0), report(5, 1))

    for shard in range(2):
        plan = plan_copy(reports_of_shard(reports, 2, shard))
        assert plan is not None
        assert plan.progress == StepProgress(1, 5)
        assert plan.sources == (1,)
        assert plan.missing_tensors == {0: (0,) if shard == 0 else ()}


def test_if_the_shards_of_each_node_are_of_different_steps_there_is_no_state() -> None:
    reports = (report(6, 0), report(5, 1))

    assert all(plan_copy(reports_of_shard(reports, 2, shard)) is None for shard in range(2))
