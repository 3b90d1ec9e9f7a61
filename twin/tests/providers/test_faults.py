"""Plans of injected faults."""

from cloudtwin.providers.faults import FaultKind, FaultPlan, InjectedFault, parse


def test_a_fault_is_injected_into_matching_operations_and_as_often_as_planned() -> None:
    plan = FaultPlan(
        faults=(InjectedFault(kind=FaultKind.ERROR, type="aws:eks/*", name="*gpu*", times=2),)
    )
    assert plan.choose([1], "aws:eks/nodeGroup:NodeGroup", "my-gpu", "create")
    assert plan.choose([2], "aws:eks/nodeGroup:NodeGroup", "my-gpu", "create") is None
    assert plan.choose([], "aws:eks/nodeGroup:NodeGroup", "system", "create") is None
    assert plan.choose([], "aws:eks/nodeGroup:NodeGroup", "my-gpu", "delete") is None


def test_the_longest_matching_pattern_decides_the_latency() -> None:
    plan = parse({"latency": {"*": 1, "aws:eks/*": 5}})
    assert (plan.seconds("aws:eks/cluster:Cluster"), plan.seconds("aws:s3/bucket:Bucket")) == (5, 1)
