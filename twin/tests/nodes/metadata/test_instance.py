"""Provider ids of machines."""

import re

from cloudtwin.nodes.metadata import instance
from cloudtwin.nodes.model import MachineSpec, Role

AWS = MachineSpec(
    "gpu-3", Role.GPU, zone="us-east-1a", region="us-east-1", cloud="aws", group="gpu"
)
AZURE = MachineSpec("t4-12", Role.GPU, region="eastus", cloud="azure", group="t4")


def test_ids_have_the_form_that_programs_parse() -> None:
    assert re.fullmatch(r"aws:///us-east-1a/i-0[0-9a-f]{16}", instance.provider_id(AWS))
    assert re.fullmatch(
        r"azure:///subscriptions/[^/]+/resourceGroups/mc_cloudtwin_none_eastus/providers"
        r"/Microsoft\.Compute/virtualMachineScaleSets/aks-t4-\d+-vmss/virtualMachines/12",
        instance.provider_id(AZURE),
    )
    assert instance.provider_id(MachineSpec("gpu-0", Role.GPU)) == ""
