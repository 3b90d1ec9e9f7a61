"""Rules of AKS for the labels of node pools."""

import pytest
from cloudtwin.providers import azure
from cloudtwin.providers.azure.aks_rules import POOL

(LABELS,) = (rule for rule in azure.CLOUD.types[POOL].rules if rule.name == "labels of a pool")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("everstep.dev/pool", None),
        ("node.kubernetes.io/lifecycle", None),
        ("role.node.kubernetes.io/gpu", None),
        ("kubernetes.io/arch", None),
        ("notkubernetes.io/role", None),
        ("kubernetes.azure.com/scalesetpriority", None),
        ("kubernetes.azure.com/mode", "AKS reserves the prefix"),
        ("node.kubernetes.azure.com/mode", "AKS reserves the prefix"),
        ("node-restriction.kubernetes.io/gpu", "must begin with an allowed prefix"),
        ("kubernetes.io/role", "must begin with an allowed prefix"),
        ("k8s.io/role", "must begin with an allowed prefix"),
        ("bad key!", "is not a valid label key"),
    ],
)
def test_a_pool_has_only_labels_outside_the_reserved_prefixes(key: str, reason: str | None) -> None:
    reasons = [failure.reason for failure in LABELS.violations({"nodeLabels": {key: "spot"}})]

    assert [reason in text for text in reasons] == [True] if reason else reasons == []
