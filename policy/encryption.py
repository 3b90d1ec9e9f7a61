"""Rules about encryption at rest and in transit, and about the control plane's logs."""

from collections.abc import Iterator

from cloudfacts.aws import EKS_LOG_TYPES

from policy.rule import Level, PolicyRule, Resource
from policy.tokens import EKS_CLUSTER, KMS_KEY, LAUNCH_TEMPLATE, STORAGE_ACCOUNT

MODERN_TLS = frozenset({"TLS1_2", "TLS1_3"})


def _check_secrets(resource: Resource) -> Iterator[str]:
    encryption = resource.properties.get("encryptionConfig") or {}
    if "secrets" not in (encryption.get("resources") or ()):
        yield "does not encrypt Secrets with a customer-managed key: add encryptionConfig for secrets"


def _check_disks(resource: Resource) -> Iterator[str]:
    for disk in resource.properties.get("blockDeviceMappings") or ():
        encrypted = (disk.get("ebs") or {}).get("encrypted")
        if str(encrypted).lower() != "true":  # the provider takes a string
            yield f"has the unencrypted disk {disk.get('deviceName')}: set ebs.encrypted to 'true'"


def _check_rotation(resource: Resource) -> Iterator[str]:
    if not resource.properties.get("enableKeyRotation"):
        yield "is never rotated: set enableKeyRotation"


def _check_transport(resource: Resource) -> Iterator[str]:
    if resource.properties.get("minimumTlsVersion") not in MODERN_TLS:
        yield "accepts TLS older than 1.2: set minimumTlsVersion to TLS1_2"
    # NFSv3 has no TLS; Microsoft requires a private network instead.
    if resource.properties.get("enableNfsV3"):
        return
    if resource.properties.get("enableHttpsTrafficOnly") is False:
        yield "accepts unencrypted requests: leave enableHttpsTrafficOnly at its default, true"


def _check_logs(resource: Resource) -> Iterator[str]:
    missing = set(EKS_LOG_TYPES) - set(resource.properties.get("enabledClusterLogTypes") or ())
    if missing:
        yield f"does not log {', '.join(sorted(missing))}: add to enabledClusterLogTypes"


RULES = (
    PolicyRule(
        name="cluster-secrets-are-encrypted",
        description="Kubernetes Secrets are encrypted with a customer-managed key.",
        types=frozenset({EKS_CLUSTER}),
        check=_check_secrets,
    ),
    PolicyRule(
        name="disks-are-encrypted",
        description="Each disk of a launch template is encrypted.",
        types=frozenset({LAUNCH_TEMPLATE}),
        check=_check_disks,
    ),
    PolicyRule(
        name="keys-are-rotated",
        description="A key is rotated every year.",
        types=frozenset({KMS_KEY}),
        check=_check_rotation,
    ),
    PolicyRule(
        name="transport-is-encrypted",
        description="A storage account accepts only TLS 1.2 or newer, and no unencrypted requests.",
        types=frozenset({STORAGE_ACCOUNT}),
        check=_check_transport,
    ),
    PolicyRule(
        name="cluster-logs-everything",
        description="All logs of the control plane are kept for audits.",
        types=frozenset({EKS_CLUSTER}),
        check=_check_logs,
        level=Level.ADVISORY,
    ),
)
