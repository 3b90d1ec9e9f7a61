"""User data of nodes as a MIME multipart document, which a managed node group merges with its own user data."""

from base64 import b64encode
from collections.abc import Sequence

MIME_HEADER = 'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="everstep"\n'

LOCAL_STORAGE = """\
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  instance:
    localStorage:
      strategy: RAID0
"""
"""Part that combines the NVMe disks of an instance into one RAID 0 array, which stores the volumes of pods."""


def shell_script(text: str) -> str:
    """Return the part that runs a script when a node starts."""
    return f'Content-Type: text/x-shellscript; charset="us-ascii"\n\n{text}'


def boothook(text: str) -> str:
    """Return the part that runs a script early at every boot, before `nodeadm`."""
    return f'Content-Type: text/cloud-boothook; charset="us-ascii"\n\n{text}'


def registration_taints(taints: Sequence[str]) -> str:
    """Return the part by which the kubelet registers its node with taints, such as `key=value:NoSchedule`.

    EKS may apply the taints of a node group later (containers-roadmap #1962).

    The part has a flag, because a flag of EKS would override `registerWithTaints` in the kubelet's configuration. EKS
    puts its own NodeConfig before this part (amazon-eks-ami #1988), nodeadm appends the flags of the later one
    (nodeadm/internal/api/merge.go), and the last `--register-with-taints` replaces earlier ones (kubernetes,
    pkg/util/flag/flags.go), so that the list has to be complete. All read 2026-11-29.

    Args:
        taints: all taints of a new node, including the taints of its node group.
    """
    return f"""\
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    flags:
      - --register-with-taints={",".join(taints)}
"""


def encoded(parts: Sequence[str]) -> str | None:
    """Return the parts as user data in base64; None if there are no parts."""
    if not parts:
        return None
    text = MIME_HEADER + "".join(f"\n--everstep\n{part}".rstrip("\n") for part in parts)
    return b64encode(f"{text}\n--everstep--\n".encode()).decode()
