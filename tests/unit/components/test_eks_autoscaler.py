"""The cluster autoscaler on EKS: what it prefers, and what it may do."""

from typing import Any

import yaml

from components.cluster.eks_autoscaler import flags
from tests.unit.components.eks_stack import cluster_of, document, full, own, plain
from tests.unit.components.recorder import Graph

RIGHTS = "eks-autoscaler-role-cluster-autoscaler"


def pod(graph: Graph) -> dict[str, Any]:
    spec: dict[str, Any] = graph["eks-autoscaler-deployment"].inputs["spec"]["template"]["spec"]
    return spec


def test_spot_is_tried_first_and_on_demand_after_it() -> None:
    said = full()["eks-autoscaler-preference"].inputs
    ranks: dict[int, list[str]] = yaml.safe_load(said["data"]["priorities"])

    def rank(name: str) -> int:
        import re

        return max(number for number, [one] in ranks.items() if re.fullmatch(one, name))

    assert said["metadata"]["name"] == "cluster-autoscaler-priority-expander"
    assert said["metadata"]["namespace"] == "kube-system", "it looks nowhere else"
    assert rank("eks-everstep-gpu-spot-0a1b") > rank("eks-everstep-gpu-on-demand-0a1b")
    assert rank("eks-everstep-gpu-on-demand-0a1b") > rank("eks-everstep-system-0a1b")
    assert "--expander=priority,least-waste" in flags(cluster_of())


def test_groups_are_found_by_the_tags_that_eks_gives_them() -> None:
    (found,) = (one for one in flags(cluster_of(name="vision")) if "auto-discovery" in one)

    assert found.endswith(
        "=asg:tag=k8s.io/cluster-autoscaler/enabled,k8s.io/cluster-autoscaler/vision"
    )


def test_a_start_up_taint_does_not_make_a_group_useless() -> None:
    assert "--startup-taint=fsx.csi.aws.com/agent-not-ready" in flags(cluster_of()), (
        "no pod tolerates it: nothing would ever be scaled from zero"
    )


def test_nodes_go_after_the_minutes_that_the_stack_names() -> None:
    said = flags(cluster_of(autoscaling={"scaleDownMinutes": 25}))

    assert "--scale-down-unneeded-time=25m" in said


def test_it_runs_where_nodes_stay_as_nobody_in_particular() -> None:
    said = pod(plain())
    (container,) = said["containers"]

    assert said["nodeSelector"] == {"everstep/pool": "system"}
    assert not said.get("tolerations")
    assert said["serviceAccountName"] == "cluster-autoscaler"
    assert said["automountServiceAccountToken"] is True
    assert said["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["env"] == [{"name": "AWS_REGION", "value": "us-east-1"}], (
        "the metadata service answers no pod there"
    )
    assert container["image"].startswith("registry.k8s.io/autoscaling/cluster-autoscaler:v1.36")


def test_its_identity_is_its_service_accounts() -> None:
    said = plain()["eks-autoscaler-identity"].inputs

    assert (said["namespace"], said["serviceAccount"]) == ("kube-system", "cluster-autoscaler")
    assert said["roleArn"].endswith(":role/everstep-autoscaler")


def test_it_resizes_this_clusters_groups_and_no_others() -> None:
    changing = [
        one
        for one in document(full()[RIGHTS])
        if any(action.startswith("autoscaling:Set") for action in one["Action"])
    ]
    (statement,) = changing

    assert {one.rpartition("/")[2] for one in statement["Resource"]} == {
        f"eks-{group.inputs.get('nodeGroupName', group.name)}-0a1b2c3d"
        for group in full().of("NodeGroup")
    }
    assert statement["Condition"]["StringEquals"] == {
        "aws:ResourceTag/k8s.io/cluster-autoscaler/everstep": "owned"
    }


def test_on_everything_it_only_looks() -> None:
    for one in document(plain()[RIGHTS]):
        if one["Resource"] == ["*"]:
            verbs = {action.partition(":")[2] for action in one["Action"]}
            assert all(verb.startswith(("Describe", "Get")) for verb in verbs)
            assert one["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-east-1"}}


def test_in_the_cluster_it_may_do_nothing_to_secrets_and_nothing_by_wildcard() -> None:
    for kind in ("ClusterRole", "Role"):
        for role in plain().of(kind):
            if not role.type.startswith("kubernetes:"):
                continue
            for rule in role.inputs["rules"]:
                for what in ("apiGroups", "resources", "verbs"):
                    assert "*" not in rule[what]
                assert "secrets" not in rule["resources"]


def test_it_names_the_objects_it_may_change_in_its_namespace() -> None:
    for rule in plain()["eks-autoscaler-here"].inputs["rules"]:
        if {"update", "delete"} & set(rule["verbs"]):
            assert rule["resourceNames"], "it could change any ConfigMap of the system"


def test_a_stack_that_does_not_scale_has_none_of_it() -> None:
    assert not [name for name in own().resources if "autoscaler" in name]
