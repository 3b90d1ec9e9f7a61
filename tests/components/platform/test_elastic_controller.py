"""The ElasticJob controllers: permissions, custom resource definition and options."""

from collections.abc import Callable

import pytest

from components.platform import elastic_controller
from everstep.catalog.names import CONTROLLER
from tests.components.existing.existing_stack import maintained_stack, pod_of, upstream_stack
from tests.components.recorder import Graph


def test_the_maintained_controller_has_only_the_permissions_it_needs() -> None:
    graph = maintained_stack()
    (cluster_role,) = graph.of_type("ClusterRole")
    rules = {
        resource: set(rule["verbs"])
        for role in graph.of_type("Role")
        if role.name.startswith("training-controller")
        for rule in role.inputs["rules"]
        for resource in rule["resources"]
        if resource != "leases"
    }

    (nodes,) = cluster_role.inputs["rules"]
    assert (nodes["resources"], set(nodes["verbs"])) == (["nodes"], {"get", "list", "watch"})
    assert rules["elasticjobs"] == {"get", "list", "watch", "delete"}, "the spec is the user's"
    assert rules["elasticjobs/status"] == {"update"}
    assert rules["pods"] == {"get", "list", "watch", "create", "delete", "patch"}
    assert rules["services"] == {"list", "create", "delete"}
    assert set(rules) == {
        "elasticjobs", "elasticjobs/status", "elasticjobs/finalizers", "pods", "services", "events",
    }  # fmt: skip


@pytest.mark.parametrize("stack", [maintained_stack, upstream_stack])
def test_a_prometheus_without_an_operator_finds_the_controllers_metrics(
    stack: Callable[[], Graph],
) -> None:
    (deployment,) = (
        resource
        for resource in stack().of_type("Deployment")
        if resource.inputs["metadata"]["name"] == CONTROLLER
    )

    template = deployment.inputs["spec"]["template"]
    (port,) = template["spec"]["containers"][0]["ports"]
    annotations = template["metadata"]["annotations"]
    assert annotations["prometheus.io/scrape"] == "true"
    assert annotations["prometheus.io/port"] == str(port["containerPort"])


def test_the_upstream_controller_reads_all_namespaces_and_writes_in_the_jobs_namespace() -> None:
    graph = upstream_stack()
    bindings = [
        resource
        for resource in graph.of_type("RoleBinding")
        if resource.inputs["subjects"][0]["name"] == "elastic-job-controller"
    ]

    (cluster_role,) = graph.of_type("ClusterRole")
    assert {verb for rule in cluster_role.inputs["rules"] for verb in rule["verbs"]} == {
        "get", "list", "watch",
    }, "a controller that creates pods anywhere can take any service account"  # fmt: skip
    assert sorted(binding.inputs["metadata"]["namespace"] for binding in bindings) == [
        "elastic-job",
        "everstep-system",
    ]
    leader = graph["training-controller-role-elastic-job-controller-leader"].inputs["rules"]
    assert {resource for rule in leader for resource in rule["resources"]} == {
        "configmaps",
        "events",
    }, "it writes no pods in the system namespace"


def test_the_upstream_controller_runs_outside_the_namespace_of_the_jobs() -> None:
    graph = upstream_stack()

    for kind, name in (
        ("Deployment", "training-controller-deployment"),
        ("ServiceAccount", "training-controller-service-account-elastic-job-controller"),
    ):
        assert graph[name] in graph.of_type(kind)
        assert graph[name].inputs["metadata"]["namespace"] == "everstep-system", (
            "a pod may name any service account of its own namespace"
        )


def test_the_admission_policy_for_a_controllers_account_exists_before_the_controller(
    graph: Graph,
) -> None:
    assert "training-controller-account-binding" in graph.ancestors(
        "training-controller-deployment"
    )


def test_only_the_maintained_controller_has_the_status_subresource() -> None:
    def subresources(graph: Graph) -> set[str]:
        (version,) = graph["training-controller-definition"].inputs["spec"]["versions"]
        return set(version["subresources"])

    assert subresources(maintained_stack()) == {"status", "scale"}
    assert subresources(upstream_stack()) == {"scale"}, "its status updates would be lost"


def test_the_definitions_of_both_controllers_are_otherwise_equal() -> None:
    definition_with_status = elastic_controller.definition(status_subresource=True)
    definition_without_status = elastic_controller.definition(status_subresource=False)

    for version in definition_with_status["spec"]["versions"]:
        del version["subresources"]["status"]
    assert definition_with_status == definition_without_status


def test_the_upstream_controller_gets_its_image_and_flags() -> None:
    (container,) = pod_of(upstream_stack()["training-controller-deployment"])["containers"]

    assert container["image"] == "torchelastic/kubernetes:0.1.0"
    assert container["command"] == [
        "/manager",
        "--enable-leader-election",
        "--metrics-addr=:8080",
    ]


def test_the_maintained_controller_watches_one_namespace() -> None:
    (container,) = pod_of(maintained_stack()["training-controller-deployment"])["containers"]

    assert "--namespace=elastic-job" in container["command"]
    assert container["image"] == "localhost/everstep/controller:local"


def test_no_controller_has_wildcard_permissions(graph: Graph) -> None:
    for kind in ("Role", "ClusterRole"):
        for role in graph.some_of_type(kind):
            for rule in role.inputs["rules"]:
                for field in ("apiGroups", "resources", "verbs"):
                    assert "*" not in rule.get(field, []), f"{role.name} has wildcard {field}"
                assert "secrets" not in rule.get("resources", []), role.name
