"""The life cycle of Azure resources with the real engine and the twin's provider."""

import base64
import json

import pytest

from twin.tests.providers.conftest import CloudProject
from twin.tests.providers.programs import AKS

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]


def test_a_cluster_with_a_spot_pool_is_created_has_no_diff_and_is_deleted_completely(
    project: CloudProject,
) -> None:
    project.program(AKS)
    project.preview()
    project.up()
    project.pulumi("preview", "--expect-no-changes")
    project.pulumi("refresh", "--yes", "--expect-no-changes")

    resources = project.resources()
    assert resources["pool"]["id"].endswith("/managedClusters/everstep/agentPools/t4")
    identities = resources["cluster"]["outputs"]["identity"]["userAssignedIdentities"]
    assert list(identities) == [resources["identity"]["id"]], (
        "the input is a list and the output a map"
    )

    project.destroy()
    assert project.account("azure-native") == []


def test_the_kubeconfig_is_a_secret_without_credentials(project: CloudProject) -> None:
    project.program(AKS)
    project.up()

    state = "".join(file.read_text() for file in project.folder.parent.glob("state/**/*.json"))
    assert "oidc" in state.lower(), "the test must have read the state files"
    kubeconfig = project.pulumi("stack", "output", "kubeconfig", "--show-secrets").strip()
    assert kubeconfig not in state
    config = json.loads(base64.b64decode(kubeconfig))
    assert config["users"][0]["user"]["exec"]["command"] == "kubelogin"
    assert "[secret]" in project.pulumi("stack", "output")


def test_undeclared_spot_label_and_taint_drift_as_they_do_on_aks(project: CloudProject) -> None:
    text = AKS.replace(
        '    node_labels={"kubernetes.azure.com/scalesetpriority": "spot"},\n'
        '    node_taints=["kubernetes.azure.com/scalesetpriority=spot:NoSchedule"], opts=opts,\n',
        "    opts=opts,\n",
    )
    assert text != AKS
    project.program(text)
    project.up()

    assert "scalesetpriority" in project.pulumi("refresh", "--yes", "--diff")


def test_two_federated_credentials_written_concurrently_are_refused(project: CloudProject) -> None:
    credentials = """
for name in ("one", "two"):
    managedidentity.FederatedIdentityCredential(
        name, federated_identity_credential_resource_name=name, resource_name_=identity.name,
        resource_group_name=group.name, issuer="https://issuer", audiences=["api://AzureADTokenExchange"],
        subject=f"system:serviceaccount:elastic-job:{name}", opts=opts,
    )
"""
    project.program(AKS.partition("assignment = ")[0] + credentials)

    assert "ConcurrentFederatedIdentityCredentialsWrites" in project.up(fails=True)


def test_violations_of_spot_pool_rules_are_refused_at_preview(project: CloudProject) -> None:
    project.program(
        AKS.replace(
            "spot_max_price=-1", 'spot_max_price=0.1234567, upgrade_settings={"max_surge": "1"}'
        )
    )

    output = project.pulumi("preview", fails=True)
    assert "more than 5 decimal places" in output
    assert "leave upgradeSettings out" in output
