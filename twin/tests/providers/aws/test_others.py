"""Logs, budgets and metrics of the twin's AWS."""

from cloudtwin.providers.aws.others import METRICS

from twin.tests.providers.offline import Provider


def test_the_endpoint_of_a_workspace_has_its_region_and_id(
    provider: Provider,
) -> None:
    identity = provider.make(METRICS, "w", alias="everstep")

    (workspace,) = provider.account.read().all(METRICS)
    host = "https://aps-workspaces.us-east-1.amazonaws.com"
    assert workspace.outputs["prometheusEndpoint"] == f"{host}/workspaces/{identity}/"
    assert workspace.outputs["arn"] == f"arn:aws:aps:us-east-1:123456789012:workspace/{identity}"
