"""Labels and annotations of all pods, and security contexts that meet the `restricted` pod security standard.

They are defined once, because Pod Security admission rejects a pod that lacks one of the security fields. Under the
default-deny policy, a pod that no other policy selects has no network.
"""

from pulumi_kubernetes import core

from components.interface import Placement
from everstep.catalog import names
from everstep.catalog.names import NAME_LABEL

USER = 10001  # user ID that owns no files in the images, so that pods write only to volumes
PULL_POLICY = "IfNotPresent"
PART_OF = {"app.kubernetes.io/part-of": "everstep"}


def labels(name: str) -> dict[str, str]:
    """Return the labels by which services, budgets and network policies select a kind of pod."""
    return {NAME_LABEL: name, **PART_OF}


def scrape_annotations(port: int) -> dict[str, str]:
    """Return the annotations by which a Prometheus without an operator finds the metrics of a pod or Service."""
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)}


WORKER = labels("worker")
DATA_PREPARATION = labels(names.DATA_PREPARATION)
MAX_PROCESSES_PER_POD = 16  # the number of GPUs of the largest machines


def pod_security() -> core.v1.PodSecurityContextArgs:
    """Return the security context of a pod."""
    return core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=USER,
        run_as_group=USER,
        fs_group=USER,
        seccomp_profile=core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def container_security(*, read_only: bool = True) -> core.v1.SecurityContextArgs:
    """Return the security context of a container; `read_only` applies to its root file system."""
    return core.v1.SecurityContextArgs(
        allow_privilege_escalation=False,
        read_only_root_filesystem=read_only,
        capabilities=core.v1.CapabilitiesArgs(drop=["ALL"]),
    )


def tolerations(placement: Placement) -> list[core.v1.TolerationArgs] | None:
    """Return the tolerations of a pod that may run on a pool; None if the pool has no taints."""
    return [
        core.v1.TolerationArgs(
            key=taint.key, operator=taint.operator, value=taint.value, effect=taint.effect
        )
        for taint in placement.tolerations
    ] or None


def field_env(name: str, path: str) -> core.v1.EnvVarArgs:
    """Return an environment variable that the kubelet sets from a field of the pod."""
    source = core.v1.EnvVarSourceArgs(field_ref=core.v1.ObjectFieldSelectorArgs(field_path=path))
    return core.v1.EnvVarArgs(name=name, value_from=source)
