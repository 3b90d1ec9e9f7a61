"""Inputs, outputs, drift and imports."""

import copy

from twin.pulumi.kubernetes import live
from twin.pulumi.provider.convert import UNKNOWN, Secret, has_unknown, plain

INPUTS = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "namespace": "n", "labels": {"a": "1"}},
    "spec": {
        "replicas": 2,
        "template": {"spec": {"containers": [
            {"name": "web", "image": "web:1", "args": ["-v"], "resources": {"requests": {"cpu": "1000m"}}},
            {"name": "log", "image": "log:1"},
        ]}},
    },
}  # fmt: skip
LIVE = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "d", "namespace": "n", "labels": {"a": "1"}, "uid": "u", "resourceVersion": "1",
                 "managedFields": [{"manager": "pulumi"}]},
    "spec": {
        "replicas": 2, "revisionHistoryLimit": 10,
        "template": {"spec": {"restartPolicy": "Always", "containers": [
            {"name": "web", "image": "web:1", "args": ["-v"], "resources": {"requests": {"cpu": "1"}}, "tty": False},
            {"name": "log", "image": "log:1", "tty": False},
        ]}},
    },
    "status": {"readyReplicas": 2},
}  # fmt: skip


def touched(change):
    now = copy.deepcopy(LIVE)
    change(now)
    return now


def test_defaults_and_other_spellings_are_no_drift():
    now = touched(
        lambda each: each["metadata"].update(resourceVersion="9", annotations={"theirs": "1"})
    )
    now["status"] = {"readyReplicas": 1}

    assert live.refreshed_inputs(INPUTS, LIVE, now) == INPUTS


def test_what_the_program_set_and_somebody_changed_is_drift():
    def change(each):
        each["spec"]["replicas"] = 5
        each["spec"]["template"]["spec"]["containers"][1]["image"] = "log:2"
        each["spec"]["template"]["spec"]["containers"][0]["args"] = ["-v", "-x"]
        del each["metadata"]["labels"]

    found = live.refreshed_inputs(INPUTS, LIVE, touched(change))
    assert found["spec"]["replicas"] == 5
    web, log = found["spec"]["template"]["spec"]["containers"]
    assert (log["image"], web["args"]) == ("log:2", ["-v", "-x"])
    assert web["resources"] == {"requests": {"cpu": "1000m"}}, (
        "untouched, so as the program wrote it"
    )
    assert "labels" not in found["metadata"]


def test_containers_are_told_apart_by_their_names():
    def change(each):
        containers = each["spec"]["template"]["spec"]["containers"]
        each["spec"]["template"]["spec"]["containers"] = [
            {"name": "side", "image": "s"},
            containers[1],
        ]

    found = live.refreshed_inputs(INPUTS, LIVE, touched(change))["spec"]["template"]["spec"][
        "containers"
    ]
    assert found == [{"name": "log", "image": "log:1"}, {"name": "side", "image": "s"}]


def test_a_secret_stays_one_through_outputs_and_refresh():
    inputs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m"},
        "data": {"word": Secret("a"), "open": "b"},
    }
    standing = {**plain(inputs), "metadata": {"name": "m", "uid": "u"}}

    assert live.outputs(standing, inputs)["data"] == {"word": Secret("a"), "open": "b"}
    now = {**standing, "data": {"word": "changed", "open": "b"}}
    assert live.refreshed_inputs(inputs, standing, now)["data"] == {
        "word": Secret("changed"),
        "open": "b",
    }


def test_a_kubernetes_secret_is_secret_even_where_the_program_forgot():
    inputs = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"a": "hunter2"},
    }
    assert live.body(inputs)["data"] == {"a": "aHVudGVyMg=="}
    standing = {**live.body(inputs), "metadata": {"name": "s", "managedFields": []}}

    assert live.outputs(standing, inputs)["data"] == Secret({"a": "aHVudGVyMg=="})
    assert live.imported_inputs(standing)["data"] == Secret({"a": "aHVudGVyMg=="})
    assert live.preview_of_unknown(inputs)["stringData"] == Secret({"a": "hunter2"})
    now = {**standing, "data": {"a": "b3RoZXI="}}
    assert live.refreshed_inputs(inputs, standing, now)["stringData"] == {"a": "other"}


def test_a_preview_knows_what_is_given_and_nothing_that_only_the_update_tells():
    seen = live.preview_of_unknown({**INPUTS, "metadata": {"name": UNKNOWN}})
    assert seen["metadata"]["uid"] is UNKNOWN
    assert seen["status"] is UNKNOWN
    assert seen["spec"] == INPUTS["spec"]

    dry = live.preview_of_dry_run(LIVE, INPUTS, {})
    assert dry["metadata"]["uid"] is UNKNOWN, "a dry run's uid is not the one that will be"
    assert dry["spec"]["revisionHistoryLimit"] == 10, "defaults are known"
    again = live.preview_of_dry_run(LIVE, INPUTS, LIVE)
    assert again["metadata"]["uid"] == "u", "an object that stands keeps its identity"


def test_an_address_that_a_dry_run_drew_is_unknown():
    inputs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"ports": []},
    }
    dry = {**inputs, "spec": {"ports": [], "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}}

    assert has_unknown(live.preview_of_dry_run(dry, inputs, {})["spec"]["clusterIP"])
    headless = {**inputs, "spec": {"clusterIP": "None"}}
    assert (
        live.preview_of_dry_run({**dry, "spec": {"clusterIP": "None"}}, headless, {})["spec"][
            "clusterIP"
        ]
        == "None"
    )


def test_an_import_takes_what_was_applied_and_leaves_the_servers_bookkeeping():
    applied = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:replicas": {}}}
    standing = touched(
        lambda each: each["metadata"].update(
            managedFields=[
                {"manager": "kubectl", "operation": "Apply", "fieldsV1": applied},
                {
                    "manager": "controller",
                    "operation": "Update",
                    "subresource": "status",
                    "fieldsV1": {"f:status": {}},
                },
            ]
        )
    )

    assert live.imported_inputs(standing) == {
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2},
        "metadata": {"name": "d", "namespace": "n", "labels": {"a": "1"}},
    }  # fmt: skip
    whole = live.imported_inputs(LIVE)
    assert whole["spec"] == LIVE["spec"]
    assert whole["metadata"] == {"name": "d", "namespace": "n", "labels": {"a": "1"}}


def test_nulls_and_status_are_not_sent():
    assert live.body({"kind": "X", "spec": {"a": None, "b": [{"c": None}]}, "status": {}}) == {
        "kind": "X",
        "spec": {"b": [{}]},
    }


def test_an_ignored_field_is_sent_as_it_stands():
    now = touched(lambda each: each["spec"].update(replicas=7))
    sent = live.body(INPUTS)

    assert live.with_others_values(sent, now, ["spec.replicas"])["spec"]["replicas"] == 7
    assert live.with_others_values(sent, None, ["spec.replicas"]) == sent
    assert live.with_others_values(sent, now, ["spec.absent.field", 'metadata.labels["a"]']) == sent
    images = live.with_others_values(sent, now, ["spec.template.spec.containers[*].image"])
    assert images == sent
    assert sent["spec"]["replicas"] == 2, "what is passed in is left alone"
