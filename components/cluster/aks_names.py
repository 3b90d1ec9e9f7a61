"""Names on Azure: within each service's limits, and the same on every run.

A name that must be unique in all of Azure, or in a tenant, carries a digest of where it belongs.
Pulumi's own random suffixes would do that too, but then nobody could say beforehand what a name
will be, and a second stack over the same state would not find it again.
"""

import hashlib
import re
import uuid

LONGEST_GROUP = 90  # Azure Resource Manager's
LONGEST_NODE_GROUP = 80  # AKS'
LONGEST_DNS_PREFIX = 54  # AKS'
LONGEST_BUDGET = 63  # Cost Management's
LONGEST_ACCOUNT = 24  # Azure Storage's, which takes lower-case letters and digits alone
_DIGITS = 10  # of a digest: 40 bits


def group_name(cluster: str, stack: str) -> str:
    """Name the resource group that a stack makes."""
    return _fitted(f"{cluster}-{stack}", LONGEST_GROUP)


def node_group_name(cluster: str, stack: str) -> str:
    """Name the resource group into which AKS puts machines and disks; it goes with the cluster."""
    return _fitted(f"{cluster}-{stack}-nodes", LONGEST_NODE_GROUP)


def dns_prefix(cluster: str, stack: str) -> str:
    """Name the API server, to which Azure adds a digest and its region's domain."""
    return _fitted(_plain(f"{cluster}-{stack}"), LONGEST_DNS_PREFIX).strip("-")


def budget_name(cluster: str, stack: str) -> str:
    """Name a stack's budget, which is one of the whole subscription's."""
    return _fitted(_plain(f"{cluster}-{stack}"), LONGEST_BUDGET).strip("-")


def account_name(cluster: str, group_id: str) -> str:
    """Name a storage account, of which the whole world has one by that name.

    Args:
        cluster: what it begins with, as far as its letters are allowed.
        group_id: the resource group's id: it tells subscriptions and stacks apart.
    """
    digest = _digest(f"{group_id.lower()}/{cluster}")
    letters = re.sub(r"[^a-z0-9]", "", cluster.lower())
    return letters[: LONGEST_ACCOUNT - _DIGITS] + digest


def assignment_name(scope: str, role: str, principal_id: str) -> str:
    """Give the GUID of a role assignment: unique in the tenant, as Azure demands.

    It changes with each of the three, none of which Azure lets an assignment change.
    """
    said = f"{scope}|{role}|{principal_id}".lower()  # Azure ignores case in all of them
    return str(uuid.uuid5(uuid.NAMESPACE_URL, said))


def _plain(name: str) -> str:
    """Keep lower-case letters, digits and hyphens alone."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower())


def _fitted(name: str, limit: int) -> str:
    """Cut a name that is too long, and say in a digest what was cut."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - _DIGITS - 1]}-{_digest(name)}"


def _digest(text: str) -> str:
    """Give the beginning of a text's SHA-256, in lower-case hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
