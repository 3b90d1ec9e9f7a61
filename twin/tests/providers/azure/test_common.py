"""ARM ids and locations."""

from cloudtwin.providers.azure.common import ROOT, arm_id, location_of, parent_of


def test_the_parent_of_an_arm_id_is_found() -> None:
    names = {"resourceGroupName": "g", "vnet": "v", "subnet": "s"}
    vnet = arm_id("Microsoft.Network/virtualNetworks/{vnet}", names)
    subnet = arm_id("Microsoft.Network/virtualNetworks/{vnet}/subnets/{subnet}", names)
    assert parent_of(subnet) == vnet
    assert parent_of(vnet) == f"{ROOT}/resourceGroups/g"
    account = f"{ROOT}/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/a"
    container = f"{account}/blobServices/default/containers/c"
    assert parent_of(container) == account, "the blob service always exists"


def test_a_location_is_compared_without_case_and_spaces() -> None:
    assert location_of("East US") == "eastus"
