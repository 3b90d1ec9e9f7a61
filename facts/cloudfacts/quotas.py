"""Service quotas of a stack, and the quota of each instance type.

Source: Service Quotas, services `ec2`, `vpc` and `fsx`, and EC2 User Guide, "EC2 instance type quotas" (2026-11-22;
quotas of networks and file systems 2026-11-25). A quota applies to one region. Quotas of instance types count vCPUs;
in new accounts, the quotas of machines with GPUs are 0.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cloudfacts.aws import family


@dataclass(frozen=True)
class Quota:
    """A service quota.

    Attributes:
        code: quota code, such as `L-3819A6DF`.
        name: the name that the console shows.
        service: service code, such as `ec2`.
    """

    code: str
    name: str
    service: str = "ec2"


ELASTIC_IPS = Quota("L-0263D0A3", "EC2-VPC Elastic IPs")
VPCS = Quota("L-F678F1CE", "VPCs per Region", "vpc")
LUSTRE_STORAGE: Mapping[str, Quota] = {
    "SCRATCH_2": Quota("L-AD2FC696", "Lustre Scratch storage capacity", "fsx"),
    "PERSISTENT_2": Quota("L-8F1B9C74", "Lustre Persistent_2 storage capacity", "fsx"),
}
"""Deployment type -> quota in GiB. The throughput of these types follows from their storage and has no quota."""


STANDARD, G_AND_VT, P, P5 = "standard", "g", "p", "p5"

ON_DEMAND: Mapping[str, Quota] = {
    STANDARD: Quota(
        "L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"
    ),
    G_AND_VT: Quota("L-DB2E81BA", "Running On-Demand G and VT instances"),
    P: Quota("L-417A185B", "Running On-Demand P instances"),
    P5: Quota("L-417A185B", "Running On-Demand P instances"),
}
SPOT: Mapping[str, Quota] = {
    STANDARD: Quota(
        "L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"
    ),
    G_AND_VT: Quota("L-3819A6DF", "All G and VT Spot Instance Requests"),
    P: Quota("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests"),
    P5: Quota("L-C4BD4855", "All P5 Spot Instance Requests"),
}


_NOT_STANDARD = frozenset({"dl", "hpc", "inf", "mac", "trn"})
"""Families with separate quotas, or without one (Mac), that begin with the letter of a standard family."""


def quota(instance_type: str, *, spot: bool) -> Quota | None:
    """Return the quota of an instance type; None for a family whose quota is not in the tables.

    Args:
        instance_type: name of the type, such as `g5.xlarge`.
        spot: whether the machine is a spot instance.
    """
    name = family(instance_type)
    letters = re.match(r"[a-z]*", name)
    group = letters[0] if letters else ""
    if group in {"g", "gr", "vt"}:
        kind = G_AND_VT
    elif group == "p":
        kind = P if name[1:2] in "234" else P5 if name.startswith("p5") else ""
    else:
        kind = STANDARD if group[:1] in set("acdhimrtz") and group not in _NOT_STANDARD else ""
    if not kind and group == "p" and not spot:
        kind = P
    return (SPOT if spot else ON_DEMAND).get(kind)
