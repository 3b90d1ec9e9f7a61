"""Plans of injected faults."""

import re
from pathlib import Path

import pytest
from cloudtwin.files import DamagedFileError
from cloudtwin.providers.faults import FaultInjector, FaultKind, FaultPlan, InjectedFault, parse
from cloudtwin.providers.protocol.errors import ProviderError
from cloudtwin.providers.protocol.values import Object


def test_a_fault_matches_a_type_a_name_and_an_operation_until_it_is_used_up() -> None:
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


def test_a_fault_is_injected_as_often_as_planned_in_all_processes(tmp_path: Path) -> None:
    path = tmp_path / "cloud" / "faults.json"
    path.parent.mkdir()
    path.write_text('{"faults": [{"kind": "error", "times": 2}]}')

    faults = [FaultInjector(tmp_path).next("aws:s3/bucket:Bucket", "b", "create") for _ in range(3)]

    assert [fault and fault.kind for fault in faults] == [FaultKind.ERROR, FaultKind.ERROR, None]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"faults": [{"kind": "fire"}]}, r"its kind must be one of .*throttle.*capacity.*lost"),
        ({"faults": [{}]}, "invalid fault: 'kind'"),
        ({"latency": {"*": "slow"}}, "invalid latency: could not convert"),
        ({"faults": [{"kind": "error", "times": -1}]}, "times must be a whole number, 0 or more"),
        ({"faults": [{"kind": "error", "times": True}]}, "times must be a whole number, 0 or more"),
        ({"faults": [{"kind": "error", "typ": "*"}]}, "'typ'.* A fault has .*'type'"),
        ({"faults": [{"kind": "error", "operation": "craete"}]}, "'craete'.*one of create, update"),
        ({"faults": [{"kind": "lost", "operation": "read"}]}, "one of create, update, delete,"),
        ({"faults": [{"kind": "capacity", "operation": "delete"}]}, "one of create, update,"),
        ({"faults": [{"kind": "error", "times": "2"}]}, "times '2'.*times must be a whole number"),
        ({"latency": {"*": "slow"}}, "'slow'"),
        ({"fault": []}, r"unknown keys \['fault'\]; the only valid keys are faults and latency"),
    ],
)
def test_an_invalid_plan_is_refused_with_the_allowed_values(document: Object, reason: str) -> None:
    with pytest.raises(ProviderError, match=reason):
        parse(document)


def test_a_plan_that_is_not_valid_json_is_refused_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "cloud" / "faults.json"
    path.parent.mkdir()
    path.write_text('{"faults": [')

    with pytest.raises(DamagedFileError, match=re.escape(str(path))):
        FaultInjector(tmp_path).seconds("aws:eks/cluster:Cluster")
