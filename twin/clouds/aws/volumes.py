"""Which file systems can be mounted. Pure.

Lustre knows no identity: the network decides, both ways, because its servers call their clients too.
Source: FSx for Lustre User Guide, "File system access control with Amazon VPC".
"""

from collections.abc import Iterable
from typing import Any

from twin.clouds.aws.eks_rules import CLUSTER, NODES
from twin.clouds.aws.fsx import LUSTRE_PORTS, SYSTEM, opens
from twin.clouds.aws.machines import TEMPLATE
from twin.clouds.aws.network import SUBNET
from twin.clouds.world import Resource, World, values_at


def volumes(world: World) -> dict[str, dict[str, Any]]:
    """Return an entry for every file system, under its id."""
    found: dict[str, dict[str, Any]] = {}
    for system in world.all(SYSTEM):
        reason = _closed(world, system)
        found[system.id] = {
            "folder": system.id,
            "attributes": {
                "dnsname": str(system.outputs["dnsName"]),
                "mountname": str(system.outputs["mountName"]),
            },
            "allowed": not reason,
            "reason": reason,
        }
    return found


def _closed(world: World, system: Resource) -> str:
    """Say why the nodes cannot reach a file system; nothing where they can."""
    theirs = [str(each) for each in system.inputs.get("securityGroupIds") or ()]
    ours = sorted(set(_node_groups(world)))
    if not theirs or not ours:
        return "" if not theirs else "connection timed out: there are no nodes that could mount it"
    subnet = world.find((SUBNET,), str(system.inputs["subnetIds"]))
    block = str(subnet.inputs.get("cidrBlock")) if subnet else ""
    for low, high in LUSTRE_PORTS:
        if not any(opens(world, group, ours, block, low, high) for group in theirs):
            return f"connection timed out: {', '.join(theirs)} lets no node in on {low}-{high}"
        if not any(opens(world, group, theirs, block, low, high) for group in ours):
            return f"connection timed out: {', '.join(ours)} lets no server in on {low}-{high}"
    return ""


def _node_groups(world: World) -> Iterable[str]:
    """Yield the security groups of nodes: a launch template's, else the cluster's own."""
    for cluster in world.all(CLUSTER):
        yield str(cluster.outputs["vpcConfig"]["clusterSecurityGroupId"])
    for nodes in world.all(NODES):
        named = (nodes.inputs.get("launchTemplate") or {}).get("id")
        template = world.find((TEMPLATE,), str(named or ""))
        for path in ("vpcSecurityGroupIds.*", "networkInterfaces.*.securityGroups.*"):
            yield from map(str, values_at(path, template.inputs) if template else ())
