"""What is written down is encrypted, and so is what travels."""

from collections.abc import Iterator

from policy.rule import Level, Resource, Rule
from policy.tokens import EKS_CLUSTER, KMS_KEY, LAUNCH_TEMPLATE, STORAGE_ACCOUNT

LOG_TYPES = frozenset({"api", "audit", "authenticator", "controllerManager", "scheduler"})
MODERN_TLS = frozenset({"TLS1_2", "TLS1_3"})


def _secrets(resource: Resource) -> Iterator[str]:
    encryption = resource.properties.get("encryptionConfig") or {}
    if "secrets" not in (encryption.get("resources") or ()):
        yield "keeps Secrets unencrypted by a key of yours: add encryptionConfig for secrets"


def _disks(resource: Resource) -> Iterator[str]:
    for disk in resource.properties.get("blockDeviceMappings") or ():
        encrypted = (disk.get("ebs") or {}).get("encrypted")
        if str(encrypted).lower() != "true":  # the provider takes a string
            yield f"has the unencrypted disk {disk.get('deviceName')}: set ebs.encrypted to 'true'"


def _rotation(resource: Resource) -> Iterator[str]:
    if not resource.properties.get("enableKeyRotation"):
        yield "is never rotated: set enableKeyRotation"


def _transport(resource: Resource) -> Iterator[str]:
    if resource.properties.get("minimumTlsVersion") not in MODERN_TLS:
        yield "takes TLS older than 1.2: set minimumTlsVersion to TLS1_2"
    # NFSv3 has no TLS; Microsoft asks for a network that nobody else is in instead.
    if resource.properties.get("enableNfsV3"):
        return
    if resource.properties.get("enableHttpsTrafficOnly") is False:
        yield "takes unencrypted requests: leave enableHttpsTrafficOnly at its default, true"


def _logs(resource: Resource) -> Iterator[str]:
    lacking = LOG_TYPES - set(resource.properties.get("enabledClusterLogTypes") or ())
    if lacking:
        yield f"does not log {', '.join(sorted(lacking))}: add to enabledClusterLogTypes"


RULES = (
    Rule(
        name="cluster-secrets-are-encrypted",
        description="Kubernetes Secrets are encrypted with a key of the stack.",
        types=frozenset({EKS_CLUSTER}),
        check=_secrets,
    ),
    Rule(
        name="disks-are-encrypted",
        description="Each disk of a launch template is encrypted.",
        types=frozenset({LAUNCH_TEMPLATE}),
        check=_disks,
    ),
    Rule(
        name="keys-are-rotated",
        description="A key is rotated every year.",
        types=frozenset({KMS_KEY}),
        check=_rotation,
    ),
    Rule(
        name="transport-is-encrypted",
        description="A storage account speaks TLS 1.2 or newer, and nothing in the clear.",
        types=frozenset({STORAGE_ACCOUNT}),
        check=_transport,
    ),
    Rule(
        name="cluster-logs-everything",
        description="The control plane's logs are kept, for the day on which one asks who did it.",
        types=frozenset({EKS_CLUSTER}),
        check=_logs,
        level=Level.ADVISORY,
    ),
)
