"""Names on Azure: within the limits of each service, and the same on every run.

A name that must be unique in all of Azure, or in a tenant, contains a digest of its scope. The random
suffixes of Pulumi would also be unique, but not predictable.
"""

import hashlib
import re
import uuid

from components.config.aks import MAX_GROUP_NAME_LENGTH

MAX_NODE_GROUP_LENGTH = 80  # limit of AKS
MAX_DNS_PREFIX_LENGTH = 54  # limit of AKS
MAX_BUDGET_LENGTH = 63  # limit of Cost Management
MAX_ACCOUNT_LENGTH = 24  # limit of Azure Storage, which allows only lower-case letters and digits
_DIGEST_LENGTH = 10  # hexadecimal digits, 40 bits


def group_name(cluster: str, stack: str) -> str:
    """Return the name of the resource group that a stack creates; Azure refuses a trailing period."""
    name = f"{cluster}-{stack}"
    if name.endswith("."):
        name = f"{name.rstrip('.')}-{_digest(name)}"
    return _fitted(name, MAX_GROUP_NAME_LENGTH)


def node_group_name(cluster: str, stack: str) -> str:
    """Return the name of the resource group in which AKS creates machines and disks."""
    return _fitted(f"{cluster}-{stack}-nodes", MAX_NODE_GROUP_LENGTH)


def dns_prefix(cluster: str, stack: str) -> str:
    """Return the prefix of the API server's DNS name; Azure appends a digest and a domain."""
    return _fitted(_normalized(f"{cluster}-{stack}"), MAX_DNS_PREFIX_LENGTH).strip("-")


def budget_name(cluster: str, stack: str) -> str:
    """Return the name of a stack's budget, unique in the subscription.

    A digest distinguishes stacks whose names become the same, such as `a.b` and `a-b`.
    """
    name = f"{cluster}-{stack}"
    normalized = _normalized(name)
    if normalized != name:
        return f"{normalized[: MAX_BUDGET_LENGTH - _DIGEST_LENGTH - 1]}-{_digest(name)}"
    return _fitted(name, MAX_BUDGET_LENGTH)


def account_name(cluster: str, group_id: str) -> str:
    """Return the name of a storage account, which must be globally unique.

    Args:
        cluster: prefix of the name, without the characters that are not allowed.
        group_id: id of the resource group, which is unique to a subscription and a stack.
    """
    digest = _digest(f"{group_id.lower()}/{cluster}")
    letters = re.sub(r"[^a-z0-9]", "", cluster.lower())
    return letters[: MAX_ACCOUNT_LENGTH - _DIGEST_LENGTH] + digest


def assignment_name(scope: str, role: str, principal_id: str) -> str:
    """Return the GUID of a role assignment, which Azure requires to be unique in the tenant.

    The GUID depends on all arguments, because Azure allows no change of them in an existing assignment.
    """
    key = f"{scope}|{role}|{principal_id}".lower()  # Azure ignores case in all of them
    return str(uuid.uuid5(uuid.NAMESPACE_URL, key))


def _normalized(name: str) -> str:
    """Return a name of lower-case letters, digits and hyphens only."""
    return re.sub(r"[^a-z0-9-]+", "-", name.lower())


def _fitted(name: str, limit: int) -> str:
    """Return a name of at most `limit` characters; a digest replaces the end of a longer one."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - _DIGEST_LENGTH - 1]}-{_digest(name)}"


def _digest(text: str) -> str:
    """Return the first digits of the SHA-256 of a string, in lower-case hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_LENGTH]
