"""Invalid Azure inputs that the models of Azure's SDK refuse."""

import pytest
from cloudtwin.providers import azure
from cloudtwin.providers.azure.common import limits
from cloudtwin.providers.evaluation import failures
from cloudtwin.providers.protocol.values import Object

MAINTENANCE = "azure-native:containerservice:MaintenanceConfiguration"
POOL = "azure-native:containerservice:AgentPool"
CLUSTER = "azure-native:containerservice:ManagedCluster"
TASK = "azure-native:containerregistry:Task"
GROUP = "azure-native:resources:ResourceGroup"
SERVICE = "azure-native:storage:BlobServiceProperties"


def window(**fields: object) -> Object:
    return {"configName": "default", "maintenanceWindow": fields}


# (type, inputs, part of the message; empty if they are valid)
CASES: list[tuple[str, Object, str]] = [
    (MAINTENANCE, window(durationHours=4, utcOffset="+01:00"), ""),
    (MAINTENANCE, window(utcOffset="+1"), "does not match"),
    (MAINTENANCE, window(schedule={"weekly": {"intervalWeeks": 5}}), "5 is too large: at most 4"),
    (MAINTENANCE, window(schedule={"daily": {"intervalDays": 0}}), "at least 1"),
    (POOL, {"osDiskSizeGB": 128}, ""),
    (POOL, {"osDiskSizeGB": 4096}, "4096 is too large: at most 2048"),
    (POOL, {"upgradeSettings": {"drainTimeoutInMinutes": 0}}, "at least 1"),
    (CLUSTER, {"resourceName": "-c"}, "does not match"),
    (TASK, {"timeout": 60}, "at least 300"),
    (GROUP, {"resourceGroupName": "g" * 91}, "at most 90 are allowed"),
    (GROUP, {"resourceGroupName": "g!"}, "does not match"),
    (SERVICE, {"blobServicesName": "default", "changeFeed": {"retentionInDays": 0}}, "at least 1"),
]


@pytest.mark.parametrize(("token", "inputs", "reason"), CASES)
def test_a_limit_of_the_models_is_checked(token: str, inputs: Object, reason: str) -> None:
    kind = azure.CLOUD.types[token]
    reasons = [failure.reason for failure in failures(kind, limits(token), inputs)]
    model_reasons = [text for text in reasons if "azure-mgmt-" in text]
    assert any(reason in text for text in model_reasons) if reason else not model_reasons, reasons
