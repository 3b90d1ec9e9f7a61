"""The file systems that nodes can mount. Pure.

Lustre does not authenticate clients: access depends only on the network, in both directions, because its
servers also connect to their clients.

Source: FSx for Lustre User Guide, "File system access control with Amazon VPC".
"""

from collections.abc import Iterable
from typing import Any

from cloudfacts.aws import LUSTRE_PORTS

from cloudtwin.providers.aws.eks_rules import CLUSTER, NODES, template_of
from cloudtwin.providers.aws.fsx import FILE_SYSTEM, allows_ingress
from cloudtwin.providers.aws.network import SUBNET, VPC
from cloudtwin.providers.inventory import Inventory, Resource, values_at


def volumes(account: Inventory) -> dict[str, dict[str, Any]]:
    """Return an entry for every file system, by its id."""
    result: dict[str, dict[str, Any]] = {}
    for system in account.all(FILE_SYSTEM):
        reason = _connection_problem(account, system)
        result[system.id] = {
            "folder": system.id,
            "attributes": {
                "dnsname": str(system.outputs["dnsName"]),
                "mountname": str(system.outputs["mountName"]),
            },
            "allowed": not reason,
            "reason": reason,
        }
    return result


def _connection_problem(account: Inventory, system: Resource) -> str:
    """Return the reason why the nodes cannot reach a file system; empty if they can."""
    node_groups = sorted(set(_node_security_groups(account)))
    if not node_groups:
        return "connection timed out: there are no nodes that could mount it"
    subnet = account.find((SUBNET,), system.inputs["subnetIds"])
    server_groups = [str(group_id) for group_id in system.inputs.get("securityGroupIds") or ()]
    if not server_groups:  # FSx uses the default group of the VPC
        vpc = account.find((VPC,), str(subnet.inputs["vpcId"])) if subnet else None
        server_groups = [str(vpc.outputs["defaultSecurityGroupId"])] if vpc else []
    block = str(subnet.inputs.get("cidrBlock")) if subnet else ""
    for low, high in LUSTRE_PORTS:
        ports = f"on ports {low}-{high}"
        if not any(
            allows_ingress(account, g, node_groups, block, low, high) for g in server_groups
        ):
            groups = ", ".join(server_groups)
            return f"connection timed out: {groups} allows no traffic from the nodes {ports}"
        if not any(
            allows_ingress(account, g, server_groups, block, low, high) for g in node_groups
        ):
            groups = ", ".join(node_groups)
            return f"connection timed out: {groups} allows no traffic from the file system {ports}"
    return ""


def _node_security_groups(account: Inventory) -> Iterable[str]:
    """Yield the security groups of nodes: groups of launch templates, and the clusters' own."""
    for cluster in account.all(CLUSTER):
        yield str(cluster.outputs["vpcConfig"]["clusterSecurityGroupId"])
    for nodes in account.all(NODES):
        template = template_of(nodes.inputs, account)
        for path in ("vpcSecurityGroupIds.*", "networkInterfaces.*.securityGroups.*"):
            yield from map(str, values_at(path, template.inputs) if template else ())
