"""etcd with TLS and users: the mounted keys, the Job that creates the Secrets, and the workers' credentials."""

from functools import cache
from typing import Any

import pytest

from components.platform.etcd_access import FOLDER
from etcd.__main__ import parse
from etcd.credentials import AGENT_SECRET, MEMBERS_SECRET, contents
from everstep.elastic.launch.options import parse as parse_launcher
from tests.components.existing.existing_stack import UPSTREAM, pod_of
from tests.components.fake_cloud import default_graph, fake_cloud_graph
from tests.components.network_policy_model import Endpoint, Network
from tests.components.recorder import Graph

MEMORY = {"persistence": "memory", "members": 3, "authentication": "users"}
DISK = {**MEMORY, "persistence": "disk", "storageClass": "fast"}
JOB = "elastic-job"


@cache
def graph(persistence: str = "memory") -> Graph:
    return fake_cloud_graph(etcd=MEMORY if persistence == "memory" else DISK)


def members(persistence: str = "memory") -> dict[str, Any]:
    return pod_of(graph(persistence)["training-etcd-members"])


def worker() -> dict[str, Any]:
    (job,) = graph().of_type("ElasticJob")
    return pod_of(job)


def container(pod: dict[str, Any], name: str) -> dict[str, Any]:
    containers = [*pod.get("initContainers", ()), *pod["containers"]]
    return next(candidate for candidate in containers if candidate["name"] == name)


def mounted_files(pod: dict[str, Any], name: str) -> set[tuple[str, str]]:
    """Return the Secret and the file name of each credential that a container of a pod mounts."""
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    credentials = set()
    secrets = contents(["IP:127.0.0.1"])
    for mount in container(pod, name)["volumeMounts"]:
        if secret := volumes.get(mount["name"], {}).get("secret"):
            assert mount["readOnly"]
            assert mount["mountPath"] == FOLDER
            assert secret["defaultMode"] == 0o400, "others on the node must not read a key"
            files = [item["path"] for item in secret.get("items", ())]
            credentials |= {
                (secret["secretName"], f) for f in files or secrets[secret["secretName"]]
            }
    return credentials


@pytest.mark.parametrize("persistence", ["memory", "disk"])
def test_every_connection_to_a_member_needs_a_certificate(persistence: str) -> None:
    pod = members(persistence)
    rejoin_command = container(pod, "rejoin")["command"] if persistence == "memory" else None
    flags = rejoin_command or container(pod, "etcd")["args"]

    assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(flags)
    assert [flag for flag in flags if "http://" in flag] == [
        "--listen-metrics-urls=http://0.0.0.0:2381"
    ]
    files = {flag.partition("=")[2] for flag in flags if f"={FOLDER}/" in flag}
    assert files - {FOLDER} == {f"{FOLDER}/{file}" for _, file in mounted_files(pod, "etcd")}


def test_the_health_of_a_member_is_read_without_a_certificate() -> None:
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    ports = {container(members(), "etcd")[probe]["httpGet"]["port"] for probe in probes}

    assert ports == {2381}


def test_a_pod_of_etcd_is_not_ready_before_the_users_exist() -> None:
    users = container(members(), "users")
    probe = users["readinessProbe"]["httpGet"]

    assert f"--health-port={probe['port']}" in users["args"]
    (job,) = graph().of_type("ElasticJob")
    assert f"--run={job.inputs['metadata']['name']}" in users["args"], "the id of its rendezvous"


def test_only_members_have_the_server_keys_and_all_passwords() -> None:
    passwords = {(MEMBERS_SECRET, "root-password"), (MEMBERS_SECRET, "agent-password")}

    assert passwords & mounted_files(members(), "etcd") == set(), "etcd itself needs none"
    assert passwords <= mounted_files(members(), "users")
    assert passwords <= mounted_files(members(), "rejoin"), "changes of the membership need root"
    assert {secret for secret, _ in mounted_files(worker(), "elasticjob-worker")} == {AGENT_SECRET}
    for name in ("training-controller-deployment", "training-data-fashion-mnist"):
        (only_container,) = pod_of(graph()[name])["containers"]
        assert mounted_files(pod_of(graph()[name]), only_container["name"]) == set()


def test_a_worker_passes_on_the_paths_of_files_that_it_mounts() -> None:
    arguments = container(worker(), "elasticjob-worker")["args"]
    injected = ["--rdzv_backend=etcd", "--rdzv_endpoint=e:1", "--rdzv_id=j", "--nnodes=1:3"]

    options = parse_launcher([*injected, *arguments])

    (rendezvous_conf,) = (
        option for option in options.torchrun if option.startswith("--rdzv-conf=")
    )
    values = dict(
        pair.split("=") for pair in rendezvous_conf.removeprefix("--rdzv-conf=").split(",")
    )
    assert (values["protocol"], values["user"]) == ("https", "agent")
    assert {values[key] for key in ("cacert", "cert", "key", "password_file")} == {
        f"{FOLDER}/{file}" for _, file in mounted_files(worker(), "elasticjob-worker")
    }


def test_the_rejoin_container_has_the_credentials_of_its_member() -> None:
    command = container(members(), "rejoin")["command"]

    assert str(parse(command[3:]).credentials) == FOLDER


def test_the_upstream_controller_passes_a_workers_credentials_on() -> None:
    # It drops fields that Kubernetes 1.15 did not have, and prepends its own arguments.
    (job,) = fake_cloud_graph(etcd=MEMORY, controller=UPSTREAM).of_type("ElasticJob")
    pod = pod_of(job)

    (volume,) = (source for source in pod["volumes"] if "secret" in source)
    assert set(volume["secret"]) == {"secretName", "defaultMode"}
    (mount,) = (
        mount
        for mount in container(pod, "elasticjob-worker")["volumeMounts"]
        if mount["name"] == volume["name"]
    )
    assert set(mount) == {"name", "mountPath", "readOnly"}
    assert (
        container(pod, "elasticjob-worker")["args"]
        == container(worker(), "elasticjob-worker")["args"]
    )


def test_credentials_exist_before_members_start() -> None:
    assert "training-etcd-credentials-job" in graph().ancestors("training-etcd-members")


def test_the_certificate_of_a_server_has_the_names_that_clients_and_members_use() -> None:
    (job,) = pod_of(graph()["training-etcd-credentials-job"])["containers"]

    assert job["command"][3:] == [
        f"DNS:*.etcd.{JOB}.svc.cluster.local",
        f"DNS:etcd-client.{JOB}.svc.cluster.local",
        "IP:127.0.0.1",
    ]


def test_the_account_that_writes_secrets_reads_only_secrets_of_etcd_and_has_an_admission_policy() -> (
    None
):
    (role,) = (
        resource
        for resource in graph().of_type("Role")
        if resource.inputs["metadata"]["name"] == "etcd-credentials"
    )
    readable = {
        name
        for rule in role.inputs["rules"]
        if {"get", "list", "watch"} & set(rule["verbs"])
        for name in rule["resourceNames"]
    }
    policies = {
        resource.inputs["metadata"]["name"]
        for resource in graph().of_type("ValidatingAdmissionPolicy")
    }

    assert readable == {MEMBERS_SECRET, AGENT_SECRET}
    assert "everstep-etcd-credentials-account" in policies


def test_the_guarded_job_asks_aks_for_no_variables_of_a_proxy() -> None:
    template = graph()["training-etcd-credentials-job"].inputs["spec"]["template"]

    assert template["metadata"]["annotations"] == {
        "kubernetes.azure.com/no-http-proxy-vars": "true"
    }, "its policy would refuse the pod with HTTP_PROXY"


def test_the_job_that_creates_credentials_reaches_only_the_api_server() -> None:
    spec = graph()["training-etcd-credentials-job"].inputs["spec"]
    labels = spec["template"]["metadata"]["labels"]
    source = Endpoint(name="job", address="10.1.0.1", namespace=JOB, labels=labels)
    etcd_labels = {"app.kubernetes.io/name": "etcd", "app.kubernetes.io/part-of": "everstep"}
    etcd = Endpoint(name="etcd", address="10.1.0.2", namespace=JOB, labels=etcd_labels)
    api = Endpoint(name="api", address="10.100.0.1")
    policies = Network(policies=[policy.inputs for policy in graph().of_type("NetworkPolicy")])

    assert policies.allows(source, api, 443)
    assert not policies.allows(source, etcd, 2379)
    assert not policies.allows(etcd, source, 443)


def test_a_change_of_authentication_replaces_the_members() -> None:
    # Members with TLS and members without TLS cannot form one cluster.
    with_users, without_users = (
        graph()["training-etcd-members"],
        default_graph()["training-etcd-members"],
    )
    annotations = [
        members.inputs["spec"]["template"]["metadata"].get("annotations")
        for members in (with_users, without_users)
    ]

    assert annotations[0] != annotations[1]
    assert "spec.template.metadata.annotations" in with_users.replace_on_changes


def test_without_authentication_there_is_no_secret() -> None:
    pod = pod_of(default_graph()["training-etcd-members"])

    assert [volume for volume in pod["volumes"] if "secret" in volume] == []
    assert [only_container["name"] for only_container in pod["containers"]] == ["etcd"]
    assert not [r for r in default_graph().of_type("Job") if "credentials" in r.name]
