"""The documented commands for etcd, against a real etcd with and without TLS and users."""

import base64
import os
import re
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from components.platform.etcd_access import FOLDER
from etcd.credentials import MEMBERS_SECRET
from everstep.elastic.membership.etcd_client import Etcd, EtcdUnreachableError
from everstep.elastic.membership.etcd_connection import EtcdOptions
from everstep.elastic.membership.generations import Generation
from everstep.elastic.membership.key_values import UnreadableKeyError, read_generation
from tests.etcd.on_twin.test_users import RUN, new_pod
from tests.trainer.elastic.nodes import etcd_process

pytestmark = pytest.mark.twin

ROOT = Path(__file__).resolve().parents[3]
TOOLS_MODULE = ROOT / "tests" / "chaos" / "etcdutl"
QUOTA = f"--quota-backend-bytes={2**20}"
KEY = f"/everstep/{RUN}/generation"
KUBECTL = """#!/bin/bash
case "$*" in
  *" get pod etcd-0 "*) echo "$CONTAINERS" ;;
  *" get secret etcd-members -o jsonpath={.data.root-password}") base64 -w0 "$FILES/root-password" ;;
  *" exec etcd-0 -c etcd -- etcdctl "*)
    while [[ $1 != etcdctl ]]; do shift; done
    shift
    arguments=("${@//127.0.0.1:2379/$ADDRESS}")
    exec "$ETCDCTL" "${arguments[@]//"$FOLDER"/$FILES}" ;;
  *) echo "unexpected: kubectl $*" >&2; exit 1 ;;
esac
"""
"""A kubectl that runs etcdctl on this machine, as in a pod whose etcd has another port and other files."""


def documented_commands() -> tuple[str, str]:
    """Return the definition of etcdctl, and the commands against a full database."""
    page = (ROOT / "docs" / "operations.md").read_text()
    section = page.partition("\n## Commands for etcd\n")[2].partition("\n## ")[0]
    definition, repair = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return definition, repair


def fill(etcd: Etcd) -> None:
    """Replace a value until etcd refuses it; etcd measures its database a few times per second."""
    key = base64.b64encode(KEY.encode()).decode()
    for _ in range(400):
        etcd.call("kv/put", {"key": key, "value": "A" * 2**17})


def repair_damage(folder: Path, options: EtcdOptions, variables: dict[str, str]) -> None:
    """Fill the database and repair it with the documented commands; then repair a key as its error says."""
    program = subprocess.run(
        ["go", "-C", str(TOOLS_MODULE), "tool", "-n", "etcdctl"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl").write_text(KUBECTL)
    (folder / "bin" / "kubectl").chmod(0o755)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder), "ETCDCTL": program, "FOLDER": FOLDER}
    definition, repair = documented_commands()

    def run(commands: str) -> None:
        script = f"set -e -o pipefail\n{definition}\n{commands}"
        subprocess.run(["bash", "-c", script], env={**environment, **variables}, check=True)

    with closing(Etcd(replace(options, retry_seconds=0))) as etcd:
        with pytest.raises(EtcdUnreachableError, match="database space exceeded") as full:
            fill(etcd)
        assert "Commands for etcd" in full.value.fix

        run(repair)

        etcd.put(KEY, "damaged")
        with pytest.raises(UnreadableKeyError) as unreadable:
            read_generation(etcd.get(KEY)[0][0])
        command = unreadable.value.fix[unreadable.value.fix.index("etcdctl put") :]

        run(command.replace('"number": N', '"number": 9'))

        assert read_generation(etcd.get(KEY)[0][0]) == Generation(9, (), "none:1")


def test_etcd_with_tls_and_users_is_repaired_by_the_documented_commands(tmp_path: Path) -> None:
    pod = new_pod(tmp_path)
    variables = {
        "CONTAINERS": "etcd users",
        "ADDRESS": f"127.0.0.1:{pod.client_port}",
        "FILES": str(tmp_path / MEMBERS_SECRET),
    }
    with pod.etcd("data", QUOTA), pod.users():
        pod.wait_until_ready()

        repair_damage(tmp_path, pod.agent_options(), variables)


def test_etcd_without_users_is_repaired_by_the_documented_commands(tmp_path: Path) -> None:
    with etcd_process(tmp_path, QUOTA) as (endpoint, _):
        variables = {"CONTAINERS": "etcd", "ETCDCTL_ENDPOINTS": f"http://{endpoint}"}

        repair_damage(tmp_path, EtcdOptions(endpoints=(endpoint,)), variables)
