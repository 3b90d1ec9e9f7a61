"""How our pods are labelled and confined: the `restricted` pod security standard.

One place, because one forgotten field makes the API server refuse the pod, and a label that its
network policies do not know cuts it off.
"""

from pulumi_kubernetes import core

from components.cluster import Placement

USER = 10001  # any id but root; owns nothing in the images, so all they write to are volumes
PULL_POLICY = "IfNotPresent"
PART_OF = {"app.kubernetes.io/part-of": "everstep"}


def labels(name: str) -> dict[str, str]:
    """Give the labels of one kind of pod; services, budgets and network policies select by them."""
    return {"app.kubernetes.io/name": name, **PART_OF}


WORKER = labels("worker")
DATA_PREPARATION = labels("prepare")
WORKER_METRICS_PORT = 9464  # of a pod's first worker process; the second's is the next one
MOST_WORKERS = 16  # GPUs of the largest machines


def pod_security() -> core.v1.PodSecurityContextArgs:
    """Give the security context of a pod."""
    return core.v1.PodSecurityContextArgs(
        run_as_non_root=True,
        run_as_user=USER,
        run_as_group=USER,
        fs_group=USER,
        seccomp_profile=core.v1.SeccompProfileArgs(type="RuntimeDefault"),
    )


def container_security(*, read_only: bool = True) -> core.v1.SecurityContextArgs:
    """Give the security context of a container; `read_only` is about its own image's files."""
    return core.v1.SecurityContextArgs(
        allow_privilege_escalation=False,
        read_only_root_filesystem=read_only,
        capabilities=core.v1.CapabilitiesArgs(drop=["ALL"]),
    )


def tolerations(placement: Placement) -> list[core.v1.TolerationArgs] | None:
    """Give the tolerations of a pod that may run on a pool; None where it needs none."""
    return [
        core.v1.TolerationArgs(
            key=taint.key, operator=taint.operator, value=taint.value, effect=taint.effect
        )
        for taint in placement.tolerations
    ] or None


def field_env(name: str, path: str) -> core.v1.EnvVarArgs:
    """Give an environment variable that the kubelet fills from the pod itself."""
    source = core.v1.EnvVarSourceArgs(field_ref=core.v1.ObjectFieldSelectorArgs(field_path=path))
    return core.v1.EnvVarArgs(name=name, value_from=source)
