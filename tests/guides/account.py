"""A user's machine and account for following a guide: a clone, an empty backend, and the twin as the cloud."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloudfacts.azure import VM_SIZES
from cloudtwin.capacity import QuotaStore
from cloudtwin.providers import install
from cloudtwin.pulumi import install_plugins
from cloudtwin.toolchain import ensure_tools

from everstep.cli.twin_settings import configure_twin
from everstep.progress import Silent
from tests.guides import cloud_programs
from tests.guides.guide import ROOT
from tests.guides.shell import Shell
from twin.tests.account_api import azure_https
from twin.tests.account_api.aws import AccountFacts, AwsApi, serve
from twin.tests.account_api.azure import AzureApi, SubscriptionFacts, family_of

AWS_ACCOUNT = "111122223333"
"""The account of the ARNs in the guide."""

PROVIDERS = {"eks": "aws", "aks": "azure-native"}
QUOTAS = {"L-3819A6DF": 192, "L-DB2E81BA": 64}
"""vCPUs of spot and on-demand machines with GPUs: as many as the largest stack may use."""

AZURE_GROUPS = frozenset({"11111111-2222-3333-4444-555555555555"})
"""Object IDs of the user's groups, which the guide makes administrators."""

AZURE_VCPUS = 1000
"""Limit of each quota of the subscription, in vCPUs: more than the largest stack may use."""

ZONE_IDS = {"us-east-1c": "use1-az4", "us-east-1d": "use1-az3"}
"""Zone -> zone ID in this account: EKS supports no control plane in use1-az3, and a stack uses us-east-1c."""

SETTINGS = {
    "PULUMI_CONFIG_PASSPHRASE": "test-passphrase",
    "PULUMI_SKIP_UPDATE_CHECK": "true",
    "PULUMI_SKIP_CONFIRMATIONS": "true",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "none",
}


@dataclass(frozen=True)
class UserMachine:
    """The machine of a user.

    Attributes:
        shell: its shell, in the clone.
        project: the folder that `everstep init` writes.
        twin: folder of the twin that stands in for the account.
    """

    shell: Shell
    project: Path
    twin: Path


@contextmanager
def user_machine(folder: Path, stack: str, *, offline: bool) -> Iterator[UserMachine]:
    """Yield the machine of a user at the beginning of a guide.

    Args:
        folder: an empty folder.
        stack: name of the guide's stack.
        offline: True for an account without machines, which is enough for previews and the registry.
    """
    clone, home, programs = (folder / name for name in ("clone", "home", "programs"))
    for path in (clone, home, folder / "backend"):
        path.mkdir()
    (clone / "policy").symlink_to(ROOT / "policy")
    twin = folder / "twins" / stack
    cloud_programs.install(programs, twin / "kubeconfig")
    pulumi = ensure_tools(["pulumi"], Silent())["pulumi"]
    install(home, PROVIDERS[stack.partition("-")[0]])
    search = (programs, pulumi.parent, Path(sys.executable).parent, os.environ["PATH"])
    host_home, environment = Path.home(), dict(os.environ)
    configure_twin(environment)  # before HOME changes: the build cache is below the real one
    environment |= {
        **SETTINGS,
        **install_plugins(home, pulumi),
        **({"CLOUDTWIN_OFFLINE": "1"} if offline else {}),
        "CLOUDTWIN_STATE": str(twin.parent),
        "CLOUDTWIN_NAME": stack,
        "BACKEND": str(folder / "backend"),
        "HOME": str(home),
        "GOCACHE": str(host_home / ".cache/go-build"),
        "GOPATH": os.environ.get("GOPATH") or str(host_home / "go"),
        "PATH": os.pathsep.join(map(str, search)),
    }
    facts = AccountFacts(
        account=AWS_ACCOUNT,
        caller=f"arn:aws:sts::{AWS_ACCOUNT}:assumed-role/platform/me",
        zone_ids=ZONE_IDS,
    )
    for code, vcpus in QUOTAS.items():
        QuotaStore(twin).set(code, vcpus)
    with serve(AwsApi(twin, facts)) as url, azure_https.serve(_subscription(twin)) as azure:
        settings = " ".join(f"{name}={value}" for name, value in azure.items())
        clouds = {"AWS_ENDPOINT_URL": url, "AZURE": settings}
        shell = Shell(clone, {**environment, **clouds}, folder / "shell.log")
        yield UserMachine(shell, clone / "training", twin)


def _subscription(twin: Path) -> AzureApi:
    """Return the subscription of the user."""
    quotas = ["cores", "lowPriorityCores", *map(family_of, VM_SIZES)]
    limits = dict.fromkeys(quotas, AZURE_VCPUS)
    return AzureApi(twin, SubscriptionFacts(groups=AZURE_GROUPS, limits=limits))
