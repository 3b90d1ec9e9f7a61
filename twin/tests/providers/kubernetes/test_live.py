"""Inputs, outputs, drift and imports."""

import copy
from collections.abc import Callable

from cloudtwin.providers.kubernetes import live
from cloudtwin.providers.protocol.values import UNKNOWN, Object, Secret, has_unknown, plain

MANAGEMENT = live.ManagementData(field_manager="pulumi-kubernetes-0123abcd", api_version="v1beta1")
INPUTS: Object = {
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
LIVE: Object = {
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


def with_change(change: Callable[[Object], object]) -> Object:
    """Return a copy of the live object to which a change is applied."""
    observed = copy.deepcopy(LIVE)
    change(observed)
    return observed


def test_defaults_and_equal_quantities_are_not_drift() -> None:
    observed = with_change(
        lambda document: document["metadata"].update(
            resourceVersion="9", annotations={"theirs": "1"}
        )
    )
    observed["status"] = {"readyReplicas": 1}

    assert live.refreshed_inputs(INPUTS, LIVE, observed) == INPUTS


def test_an_outside_change_to_a_field_of_the_program_is_drift() -> None:
    def change(changed: Object) -> None:
        changed["spec"]["replicas"] = 5
        changed["spec"]["template"]["spec"]["containers"][1]["image"] = "log:2"
        changed["spec"]["template"]["spec"]["containers"][0]["args"] = ["-v", "-x"]
        del changed["metadata"]["labels"]

    new_inputs = live.refreshed_inputs(INPUTS, LIVE, with_change(change))
    assert new_inputs["spec"]["replicas"] == 5
    web, log = new_inputs["spec"]["template"]["spec"]["containers"]
    assert (log["image"], web["args"]) == ("log:2", ["-v", "-x"])
    assert web["resources"] == {"requests": {"cpu": "1000m"}}, (
        "an unchanged field keeps the program's spelling"
    )
    assert "labels" not in new_inputs["metadata"]


def test_containers_are_matched_by_name() -> None:
    def change(changed: Object) -> None:
        containers = changed["spec"]["template"]["spec"]["containers"]
        changed["spec"]["template"]["spec"]["containers"] = [
            {"name": "side", "image": "s"},
            containers[1],
        ]

    new_inputs = live.refreshed_inputs(INPUTS, LIVE, with_change(change))["spec"]["template"][
        "spec"
    ]["containers"]
    assert new_inputs == [{"name": "log", "image": "log:1"}, {"name": "side", "image": "s"}]


def test_items_without_names_are_matched_by_position_in_lists_of_equal_length() -> None:
    inputs: Object = {"rules": [{"cpu": "1000m", "max": 1}]}
    previous: Object = {"rules": [{"cpu": "1", "max": 1}]}
    changed: Object = {"rules": [{"cpu": "1", "max": 2}]}
    longer: Object = {"rules": [*previous["rules"], {"cpu": "2"}]}

    assert live.with_drift(inputs, previous, changed) == {"rules": [{"cpu": "1000m", "max": 2}]}
    assert live.with_drift(inputs, previous, longer) == longer


def test_a_secret_stays_secret_through_outputs_and_refresh() -> None:
    inputs = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m"},
        "data": {"word": Secret("a"), "open": "b"},
    }
    live_object = {**plain(inputs), "metadata": {"name": "m", "uid": "u"}}

    assert live.outputs(live_object, inputs, MANAGEMENT)["data"] == {
        "word": Secret("a"),
        "open": "b",
    }
    observed = {**live_object, "data": {"word": "changed", "open": "b"}}
    assert live.refreshed_inputs(inputs, live_object, observed)["data"] == {
        "word": Secret("changed"),
        "open": "b",
    }


def test_the_outputs_have_the_internal_fields_of_the_official_provider() -> None:
    outputs = live.outputs(LIVE, INPUTS, MANAGEMENT)

    assert outputs["__inputs"] == INPUTS
    assert outputs["__initialApiVersion"] == "v1beta1"
    assert outputs["__fieldManager"] == "pulumi-kubernetes-0123abcd"
    assert "managedFields" not in outputs["metadata"]


def test_a_secret_stays_secret_when_a_refresh_moves_it_in_a_list() -> None:
    inputs = {"env": [{"name": "open", "value": "1"}, {"name": "word", "value": Secret("hunter2")}]}
    previous_object = plain(inputs)

    refreshed = live.refreshed_inputs(inputs, previous_object, {"env": previous_object["env"][1:]})

    assert refreshed == {"env": Secret([{"name": "word", "value": "hunter2"}])}


def test_a_secret_is_marked_in_the_inputs_that_the_outputs_keep() -> None:
    inputs = {"apiVersion": "v1", "kind": "Secret", "metadata": {}, "stringData": {"a": "hunter2"}}

    assert live.outputs({"metadata": {}}, inputs, MANAGEMENT)["__inputs"]["stringData"] == Secret(
        {"a": "hunter2"}
    )


def test_the_data_of_a_kubernetes_secret_is_secret_even_if_not_marked() -> None:
    inputs = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s"},
        "stringData": {"a": "hunter2"},
    }
    assert live.body(inputs)["data"] == {"a": "aHVudGVyMg=="}
    live_object = {**live.body(inputs), "metadata": {"name": "s", "managedFields": []}}

    assert live.outputs(live_object, inputs, MANAGEMENT)["data"] == Secret({"a": "aHVudGVyMg=="})
    assert live.imported_inputs(live_object)["data"] == Secret({"a": "aHVudGVyMg=="})
    assert live.preview_of_unknown(inputs)["stringData"] == Secret({"a": "hunter2"})
    observed = {**live_object, "data": {"a": "b3RoZXI="}}
    assert live.refreshed_inputs(inputs, live_object, observed)["stringData"] == {"a": "other"}


def test_a_preview_returns_known_inputs_and_unknown_server_fields() -> None:
    preview = live.preview_of_unknown({**INPUTS, "metadata": {"name": UNKNOWN}})
    assert preview["metadata"]["uid"] is UNKNOWN
    assert preview["status"] is UNKNOWN
    assert preview["spec"] == INPUTS["spec"]

    creation = live.preview_of_dry_run(LIVE, INPUTS, {})
    assert creation["metadata"]["uid"] is UNKNOWN, "a dry run's uid is not the final one"
    assert creation["spec"]["revisionHistoryLimit"] == 10, "defaults are known"
    update = live.preview_of_dry_run(LIVE, INPUTS, LIVE)
    assert update["metadata"]["uid"] == "u", "an existing object keeps its identity"


def test_an_address_that_a_dry_run_allocates_is_unknown() -> None:
    inputs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"ports": []},
    }
    dry_run = {**inputs, "spec": {"ports": [], "clusterIP": "10.0.0.9", "clusterIPs": ["10.0.0.9"]}}

    assert has_unknown(live.preview_of_dry_run(dry_run, inputs, {})["spec"]["clusterIP"])
    assert has_unknown(live.preview_of_unknown(inputs)["spec"]["clusterIP"])
    update = live.preview_of_dry_run(dry_run, inputs, dry_run)
    assert update["spec"]["clusterIP"] == "10.0.0.9", "an existing Service keeps its address"
    headless_service = {**inputs, "spec": {"clusterIP": "None"}}
    assert (
        live.preview_of_dry_run({**dry_run, "spec": {"clusterIP": "None"}}, headless_service, {})[
            "spec"
        ]["clusterIP"]
        == "None"
    )


def test_an_import_takes_applied_fields_and_leaves_fields_of_the_server() -> None:
    applied_fields = {"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {"f:replicas": {}}}
    live_object = with_change(
        lambda document: document["metadata"].update(
            managedFields=[
                {"manager": "kubectl", "operation": "Apply", "fieldsV1": applied_fields},
                {
                    "manager": "controller",
                    "operation": "Update",
                    "subresource": "status",
                    "fieldsV1": {"f:status": {}},
                },
            ]
        )
    )

    assert live.imported_inputs(live_object) == {
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2},
        "metadata": {"name": "d", "namespace": "n", "labels": {"a": "1"}},
    }  # fmt: skip
    imported_inputs = live.imported_inputs(LIVE)
    assert imported_inputs["spec"] == LIVE["spec"]
    assert imported_inputs["metadata"] == {"name": "d", "namespace": "n", "labels": {"a": "1"}}


def test_nulls_and_status_are_not_sent() -> None:
    assert live.body({"kind": "X", "spec": {"a": None, "b": [{"c": None}]}, "status": {}}) == {
        "kind": "X",
        "spec": {"b": [{}]},
    }


def test_an_ignored_field_is_sent_with_its_live_value() -> None:
    observed = with_change(lambda document: document["spec"].update(replicas=7))
    body = live.body(INPUTS)

    assert live.with_live_values(body, observed, ["spec.replicas"])["spec"]["replicas"] == 7
    assert live.with_live_values(body, None, ["spec.replicas"]) == body
    assert (
        live.with_live_values(body, observed, ["spec.absent.field", 'metadata.labels["a"]']) == body
    )
    images = live.with_live_values(body, observed, ["spec.template.spec.containers[*].image"])
    assert images == body
    assert body["spec"]["replicas"] == 2, "the argument is left unchanged"
