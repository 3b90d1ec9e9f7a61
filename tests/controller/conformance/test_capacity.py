"""A job that follows capacity has as many workers as there are machines for, within its bounds."""

import pytest

pytestmark = pytest.mark.upstream_known_wrong("it keeps to the number in the spec")

FOLLOWS = {"everstep.dev/scaling": "capacity"}
HOSTNAME = "kubernetes.io/hostname"


def one_a_node(name: str) -> dict:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"job-name": name}}}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }


@pytest.fixture
def follower(bench, name):
    """Makes a job of at most one worker a machine that follows capacity."""
    return lambda **asked: bench.job(name, annotations=FOLLOWS, pod=one_a_node(name), **asked)


def test_a_job_follows_its_machines_down_and_up_and_leaves_the_others_alone(follower, kubelet):
    job = follower(replicas=3, most=3)
    job.until_running({0, 1, 2})
    before = job.uids()
    machine = job.pods()[1].spec.node_name

    kubelet.lose(machine)
    try:
        job.until("two are wanted", lambda: job.wanted() == 2, 30)
        job.until_running({0, 2})
        job.until("it runs on", lambda: job.holds("Running"))
        assert {index: job.uids()[index] for index in (0, 2)} == {0: before[0], 2: before[2]}
        assert job.read()["spec"]["replicaSpecs"]["Worker"]["replicas"] == 3, (
            "the spec is the user's"
        )
    finally:
        kubelet.bring(machine)

    job.until("three are wanted", lambda: job.wanted() == 3, 30)
    job.until_running({0, 1, 2})
    assert {index: job.uids()[index] for index in (0, 2)} == {0: before[0], 2: before[2]}


def test_it_grows_beyond_what_it_began_with_up_to_its_bound(follower):
    job = follower(replicas=1, most=2)
    job.until_running({0})
    before = job.uids()

    job.until_running({0, 1})

    assert job.uids()[0] == before[0]
    job.stays("there is a third machine, and two are the most", lambda: job.running() == {0, 1})


def test_without_machines_it_is_set_aside_and_goes_on_when_they_come(follower, kubelet):
    job = follower(replicas=2, most=3)
    job.until("as many as machines", lambda: len(job.running()) == 3)
    machines = {pod.spec.node_name for pod in job.pods().values()}

    for machine in machines:
        kubelet.lose(machine)
    try:
        job.until("set aside", lambda: job.holds("Suspended") and not job.pods(), 30)
        condition = job.conditions()["Suspended"]
        assert condition["reason"] == "NoCapacity"
        assert "found no machine" in condition["message"]
        assert not job.holds("Failed")
    finally:
        for machine in machines:
            kubelet.bring(machine)

    job.until("it goes on", lambda: len(job.running()) == 3, 30)
    job.until("it says so", lambda: job.holds("Running") and not job.holds("Suspended"))


def test_edits_of_all_three_numbers_count_at_once_and_cost_no_worker_that_stays(follower):
    job = follower(replicas=1, most=1)
    job.until_running({0})
    before = job.uids()[0]

    job.patch({"maxReplicas": 3})
    job.until_running({0, 1, 2})
    job.patch({"minReplicas": 2, "replicaSpecs": {"Worker": {"replicas": 2}}})
    job.until_running({0, 1})
    job.patch({"minReplicas": 1, "maxReplicas": 1, "replicaSpecs": {"Worker": {"replicas": 1}}})
    job.until_running({0})

    assert job.uids()[0] == before
    job.until("its worker knows", lambda: job.bounds_told() == {0: "1:1"})


@pytest.mark.only_on("stand-in", "a rule of the controller's own")
def test_a_cordoned_machine_is_no_room(follower, kubelet):
    kubelet.cordon(on=True)
    try:
        job = follower(replicas=1, most=3)
        job.until("set aside", lambda: job.holds("Suspended") and not job.pods())
        job.stays("nobody is tried", lambda: not job.pods(), 3)
    finally:
        kubelet.cordon(on=False)

    job.until_running({0, 1, 2})
