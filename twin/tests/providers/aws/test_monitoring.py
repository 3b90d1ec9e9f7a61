"""Prometheus workspaces of the twin's AWS."""

from cloudtwin.providers.aws.monitoring import PROMETHEUS_WORKSPACE

from twin.tests.providers.offline import Provider


def test_the_endpoint_of_a_workspace_has_its_region_and_id(
    provider: Provider,
) -> None:
    identity = provider.create_resource(PROMETHEUS_WORKSPACE, "w", alias="everstep")

    (workspace,) = provider.account.read().all(PROMETHEUS_WORKSPACE)
    host = "https://aps-workspaces.us-east-1.amazonaws.com"
    assert workspace.outputs["prometheusEndpoint"] == f"{host}/workspaces/{identity}/"
    assert workspace.outputs["arn"] == f"arn:aws:aps:us-east-1:123456789012:workspace/{identity}"
