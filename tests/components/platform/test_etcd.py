"""etcd: its members, their data and the options of the servers."""

from tests.components.existing.existing_stack import declare_existing, maintained_stack, pod_of
from tests.components.recorder import Graph


def flags(graph: Graph) -> list[str]:
    (container,) = pod_of(graph["training-etcd-members"])["containers"]
    arguments: list[str] = container["args"]
    return arguments


def test_each_etcd_member_advertises_itself() -> None:
    actual = flags(maintained_stack())
    host = "http://$(POD_NAME).etcd.elastic-job.svc.cluster.local"

    assert f"--advertise-client-urls={host}:2379" in actual, "clients could not fail over"
    assert f"--initial-advertise-peer-urls={host}:2380" in actual
    assert "--enable-v2" in actual, "torch's etcd backends support no newer API"


def test_an_etcd_member_keeps_its_data_when_it_moves_to_another_node() -> None:
    (container,) = pod_of(maintained_stack()["training-etcd-members"])["containers"]
    (mount,) = container["volumeMounts"]

    assert mount["subPathExpr"] == "etcd/of-3/$(POD_NAME)", (
        "a member with an empty folder and a known name refuses to start"
    )


def test_etcd_grants_the_short_leases_that_workers_request() -> None:
    actual = dict(flag.split("=", 1) for flag in flags(maintained_stack()) if "=" in flag)
    heartbeat_ms, election_ms = (
        int(actual[key]) for key in ("--heartbeat-interval", "--election-timeout")
    )
    # As etcd computes it: 3/2 of the election timeout in whole heartbeats.
    min_lease_ms = 3 * (election_ms // heartbeat_ms) // 2 * heartbeat_ms

    assert min_lease_ms <= 2000, (
        "etcd would extend a lease of 2 s, and lost workers would be detected late"
    )


def test_a_different_number_of_members_replaces_the_cluster() -> None:
    graph = declare_existing(etcd={"members": 5})
    members = graph["training-etcd-members"]

    assert members.inputs["spec"]["replicas"] == 5
    assert sum(flag.count("etcd-4=http://etcd-4.") for flag in flags(graph)) == 1
    assert "spec.replicas" in members.replace_on_changes
    (container,) = pod_of(members)["containers"]
    assert container["volumeMounts"][0]["subPathExpr"].startswith("etcd/of-5/"), (
        "existing members would refuse new ones"
    )


def test_drains_evict_one_etcd_member_at_a_time() -> None:
    graph = maintained_stack()

    assert graph["training-etcd-budget"].inputs["spec"]["maxUnavailable"] == 1
    selector = graph["training-etcd-budget"].inputs["spec"]["selector"]["matchLabels"]
    labels = graph["training-etcd-members"].inputs["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()


def test_members_find_each_other_before_they_are_ready() -> None:
    members = maintained_stack()["training-etcd-members"].inputs
    peers = maintained_stack()["training-etcd-peers"].inputs

    assert members["spec"]["podManagementPolicy"] == "Parallel", (
        "with OrderedReady, the first member would wait endlessly for a quorum"
    )
    assert peers["spec"]["clusterIP"] == "None"
    assert peers["spec"]["publishNotReadyAddresses"] is True
    assert peers["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_members_spread_only_over_nodes_whose_taints_they_tolerate() -> None:
    graph = declare_existing(etcd={"persistence": "memory"})
    (constraint,) = pod_of(graph["training-etcd-members"])["topologySpreadConstraints"]

    assert constraint["whenUnsatisfiable"] == "DoNotSchedule"
    assert constraint["nodeTaintsPolicy"] == "Honor", (
        "otherwise a tainted node without members would count, and two other nodes could not run three members"
    )
