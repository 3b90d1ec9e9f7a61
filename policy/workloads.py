"""Rules about workloads: pinned images, memory limits, no privileges, no plaintext secrets."""

from collections.abc import Iterator, Mapping
from typing import Any

from everstep.catalog.names import SYSTEM_NAMESPACE
from everstep.catalog.plaintext import is_harmless
from policy.rule import Level, PolicyRule, Resource
from policy.tokens import (
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    ELASTIC_JOB,
    JOB,
    POD,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    STATEFUL_SET,
)

POD_TYPES = frozenset(
    {
        *(POD, DEPLOYMENT, STATEFUL_SET, DAEMON_SET, REPLICA_SET, REPLICATION_CONTROLLER),
        *(JOB, CRON_JOB, ELASTIC_JOB),
    }
)
# Namespaces of pods that need the host: device plugins, exporters, the spot watcher.
SYSTEM_NAMESPACES = frozenset({SYSTEM_NAMESPACE, "kube-system"})
SECRET_SUFFIXES = ("_PASSWORD", "_TOKEN", "_SECRET", "_SECRET_ACCESS_KEY")

Container = Mapping[str, Any]


def _pod_specs(resource: Resource) -> Iterator[Mapping[str, Any]]:
    spec = resource.properties.get("spec") or {}
    if resource.type == POD:
        yield spec
    elif resource.type == ELASTIC_JOB:
        for replica in (spec.get("replicaSpecs") or {}).values():
            yield (replica.get("template") or {}).get("spec") or {}
    else:
        if resource.type == CRON_JOB:
            spec = (spec.get("jobTemplate") or {}).get("spec") or {}
        yield (spec.get("template") or {}).get("spec") or {}


def _containers(resource: Resource) -> Iterator[Container]:
    for spec in _pod_specs(resource):
        yield from spec.get("initContainers") or ()
        yield from spec.get("containers") or ()


def _check_image_tag(resource: Resource) -> Iterator[str]:
    for container in _containers(resource):
        image = str(container.get("image") or "")
        tag = image.rpartition("/")[2].partition(":")[2]
        if "@sha256:" not in image and tag in ("", "latest"):
            yield f"runs {image}, which may change at any time: use a fixed tag or a digest"


def _check_image_digest(resource: Resource) -> Iterator[str]:
    if not resource.in_production:
        return
    for container in _containers(resource):
        image = str(container.get("image") or "")
        if "@sha256:" not in image:
            yield f"runs {image} in production by its tag, which can move: use its digest"


def _check_memory_limit(resource: Resource) -> Iterator[str]:
    for container in _containers(resource):
        resources = container.get("resources") or {}
        if not (resources.get("limits") or {}).get("memory"):
            yield (
                f"sets no memory limit on the container {container.get('name')}, "
                "which can exhaust its node's memory: set resources.limits.memory"
            )


def _check_privileges(resource: Resource) -> Iterator[str]:
    namespace = (resource.properties.get("metadata") or {}).get("namespace")
    if namespace in SYSTEM_NAMESPACES:
        return
    for spec in _pod_specs(resource):
        for setting in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(setting):
                yield f"shares the node's {setting.removeprefix('host')}: only system pods may"
    for container in _containers(resource):
        if (container.get("securityContext") or {}).get("privileged"):
            yield f"runs the container {container.get('name')} privileged: only system pods may"


def _check_plaintext_secrets(resource: Resource) -> Iterator[str]:
    for container in _containers(resource):
        for variable in container.get("env") or ():
            name = str(variable.get("name") or "")
            is_secret = f"_{name.upper()}".endswith(SECRET_SUFFIXES)
            if is_secret and not is_harmless(str(variable.get("value") or "")):
                yield f"has {name} in plaintext: read it from a Secret or an identity"


RULES = (
    PolicyRule(
        name="images-are-pinned",
        description="An image is referenced by a digest or by a tag other than latest.",
        types=POD_TYPES,
        check=_check_image_tag,
    ),
    PolicyRule(
        name="production-images-by-digest",
        description="Production images are referenced by digest.",
        types=POD_TYPES,
        check=_check_image_digest,
        level=Level.ADVISORY,
    ),
    PolicyRule(
        name="containers-have-limits",
        description="Each container has a memory limit.",
        types=POD_TYPES,
        check=_check_memory_limit,
    ),
    PolicyRule(
        name="workloads-are-unprivileged",
        description="Only system pods may be privileged or share their node's namespaces.",
        types=POD_TYPES,
        check=_check_privileges,
    ),
    PolicyRule(
        name="no-plaintext-secrets",
        description="No container has a secret in a plaintext environment variable.",
        types=POD_TYPES,
        check=_check_plaintext_secrets,
    ),
)
