"""Nodes pull from the twin's registry as from the registry of a cloud: with credentials, and by digest."""

import json
import secrets
from functools import partial
from typing import Any

import pytest
from cloudtwin import files
from cloudtwin.images.store import ensure_layout
from cloudtwin.kubernetes_api import KubernetesClient
from cloudtwin.nodes import MachineSpec, Role, Twin
from cloudtwin.nodes.control_plane import registry
from cloudtwin.nodes.linux.cgroups import CgroupHierarchies
from cloudtwin.progress import Lines, Silent
from cloudtwin.providers import registries
from cloudtwin.providers.registries import PrivateRegistry

from twin.tests.nodes.conftest import api_of, wait_until
from twin.tests.nodes.pods import PYTHON, events_of, phase, pod, start

pytestmark = [pytest.mark.twin, pytest.mark.timeout(900)]

ECR, ACR = "123456789012.dkr.ecr.us-east-1.amazonaws.com", "everstepprod.azurecr.io"
THIRD_PARTY = "registry.example.org"
AWS = MachineSpec(
    name="aws-0", role=Role.GPU, instance_type="g5.xlarge", zone="us-east-1a", region="us-east-1", cloud="aws"
)  # fmt: skip
PULL_SECONDS = 60


@pytest.fixture(scope="module")
def twin(nodes_twin: Twin) -> Twin:
    nodes_twin.up([AWS], Lines())
    registry.ensure(nodes_twin.layout, CgroupHierarchies.detect(), Lines())
    return nodes_twin


@pytest.fixture
def api(twin: Twin) -> KubernetesClient:
    return api_of(twin)


def push(twin: Twin, host: str, repository: str, tag: str) -> str:
    """Push the image of the tests under a name; return its digest."""
    source = ensure_layout(PYTHON, Silent())
    return registry.publish(twin.layout, source, host, repository, tag, Silent())


def set_account(twin: Twin, *, nodes_may_pull: bool) -> None:
    """Set the contents of the AWS account: one repository."""
    twin.layout.cloud.mkdir(exist_ok=True)
    registries.write(
        twin.state,
        "aws",
        {ECR: PrivateRegistry(id="123456789012", user="AWS", nodes_may_pull=nodes_may_pull,
                              repositories={"everstep/python": True})},
    )  # fmt: skip


def set_third_party_registry(twin: Twin, password: str) -> None:
    """Declare a private registry outside the account, with one login for pulls."""
    rules = {
        THIRD_PARTY: {
            "id": "others",
            "push": {"owner": "push"},
            "pull": {"robot": password},
            "repositories": None,
        }
    }
    folder = registry.rules_folder(twin.state)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.write_json(folder / "others.json", {"registries": rules}, files.PRIVATE)


def create_pull_secret(api: KubernetesClient, name: str, password: str) -> str:
    """Create a Secret with a login to the third-party registry; return its name."""
    login = {"username": "robot", "password": password}
    body = {
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": json.dumps({"auths": {THIRD_PARTY: login}})},
    }
    api.post("/api/v1/namespaces/default/secrets", body)
    return name


def run(api: KubernetesClient, image: str, pull_secret: str = "") -> str:
    """Start a pod with an image on the machine; return its name."""
    name = f"pull-{secrets.token_hex(3)}"
    body = pod(name, AWS.name, "")
    body["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "IfNotPresent"}
    if pull_secret:
        body["spec"]["imagePullSecrets"] = [{"name": pull_secret}]
    start(api, body)
    return name


def waiting_status(api: KubernetesClient, name: str) -> dict[str, Any]:
    """Return the waiting state of the pod's container; empty if it does not wait."""
    statuses = api.get(f"/api/v1/namespaces/default/pods/{name}")["status"]
    states = [
        container_status["state"] for container_status in statuses.get("containerStatuses", ())
    ]
    return next((state["waiting"] for state in states if "waiting" in state), {})


def check_refusal(api: KubernetesClient, image: str, message: str, pull_secret: str = "") -> None:
    name = run(api, image, pull_secret)
    reasons = ("ErrImagePull", "ImagePullBackOff")
    wait_until(
        lambda: waiting_status(api, name).get("reason") in reasons, PULL_SECONDS, "the pull fails"
    )
    wait_until(
        lambda: "Failed to pull" in events_of(api, name), PULL_SECONDS, "the event is recorded"
    )
    assert message in (events := events_of(api, name)), events
    assert phase(api, name) == "Pending"


def test_an_image_that_no_registry_has_is_not_pulled(twin: Twin, api: KubernetesClient) -> None:
    check_refusal(api, "ghcr.io/everstep/nowhere:1", "not found")
    check_refusal(api, "busybox", "docker.io/library/busybox:latest")


def has_succeeded(api: KubernetesClient, name: str) -> bool:
    return phase(api, name) == "Succeeded"


def test_a_public_image_runs_under_each_of_its_names(twin: Twin, api: KubernetesClient) -> None:
    push(twin, "docker.io", "team/python", "1")

    for image in ("team/python:1", "docker.io/team/python:1", "index.docker.io/team/python:1"):
        name = run(api, image)
        wait_until(partial(has_succeeded, api, name), PULL_SECONDS, f"{image} runs")


def test_nodes_pull_from_their_account_by_digest_while_their_role_allows_it(
    twin: Twin, api: KubernetesClient
) -> None:
    set_account(twin, nodes_may_pull=False)
    digest = push(twin, ECR, "everstep/python", "1")
    image = f"{ECR}/everstep/python@{digest}"

    check_refusal(api, image, "401 Unauthorized")
    set_account(twin, nodes_may_pull=True)
    name = run(api, image)

    wait_until(lambda: phase(api, name) == "Succeeded", PULL_SECONDS, "the image runs")
    check_refusal(api, f"{ECR}/everstep/other:1", "not found")
    unknown_digest = digest[:-4] + ("0000" if digest[-4:] != "0000" else "1111")
    check_refusal(api, f"{ECR}/everstep/python@{unknown_digest}", "not found")


def test_a_third_party_registry_requires_the_login_that_a_pod_names(
    twin: Twin, api: KubernetesClient
) -> None:
    set_third_party_registry(twin, "right")
    digest = push(twin, THIRD_PARTY, "vision/python", "1")
    image = f"{THIRD_PARTY}/vision/python@{digest}"
    wrong_secret, right_secret = (
        create_pull_secret(api, "wrong", "wrong"),
        create_pull_secret(api, "right", "right"),
    )

    check_refusal(api, image, "401 Unauthorized")
    check_refusal(api, image, "401 Unauthorized", wrong_secret)
    name = run(api, image, right_secret)

    wait_until(lambda: phase(api, name) == "Succeeded", PULL_SECONDS, "the image runs")


def test_passwords_are_readable_by_root_only_and_do_not_change(twin: Twin) -> None:
    set_account(twin, nodes_may_pull=True)
    rules = registry.rules_folder(twin.state)
    before = {path.name: path.read_text() for path in rules.glob("*.json")}

    set_account(twin, nodes_may_pull=False)
    set_account(twin, nodes_may_pull=True)

    registry_rules = json.loads((rules / "aws.json").read_text())["registries"][ECR]
    assert registry_rules["push"] == json.loads(before["aws.json"])["registries"][ECR]["push"]
    assert rules.stat().st_mode & 0o777 == 0o700
    assert (files.read_json(twin.layout.cloud / "registry-credentials.json") or {})["auth"]
    credentials = twin.layout.cloud / "registry-credentials.json"
    assert credentials.stat().st_mode & 0o777 == 0o600
