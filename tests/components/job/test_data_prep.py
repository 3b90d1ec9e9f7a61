"""The Job that prepares the data: its arguments, its environment, its metrics and its termination message."""

from typing import Any

from tests.components.aws.eks_stack import declare_training
from tests.components.existing.existing_stack import declare_existing, pod_of
from tests.components.recorder import Graph

IMAGES = {"dataset": "imagefolder"}
BASE_OPTIONS = ["--dataset", "imagefolder", "--output", "/everstep/data/imagefolder"]
STAGING_OPTIONS = ["--source", "/everstep/data/imagefolder-source"]


def container(graph: Graph) -> dict[str, Any]:
    (prepare,) = pod_of(graph.one("Job"))["containers"]
    return dict(prepare)


def test_without_a_source_the_command_line_does_not_change() -> None:
    assert container(declare_existing(data=IMAGES))["args"] == BASE_OPTIONS
    added_keys = {"env", "ports", "terminationMessagePolicy"} & container(
        declare_existing(data=IMAGES)
    ).keys()
    assert not added_keys, "a change of the pod replaces the Job"


def test_a_bucket_is_copied_to_its_own_folder_before_it_is_converted() -> None:
    graph = declare_training(data={**IMAGES, "source": "s3://my-photos/imagenet"})

    prepare = container(graph)
    assert prepare["args"] == [
        *BASE_OPTIONS,
        "--stage",
        "s3://my-photos/imagenet",
        *STAGING_OPTIONS,
    ]
    assert {"name": "AWS_REGION", "value": "us-east-1"} in prepare["env"]
    assert graph.one("Job").inputs["spec"]["activeDeadlineSeconds"] > 3600, "a copy takes hours"


def test_the_reason_for_a_failed_copy_is_in_the_status_of_the_pod() -> None:
    prepare = container(declare_training(data={**IMAGES, "source": "s3://my-photos/imagenet"}))

    assert prepare["terminationMessagePolicy"] == "FallbackToLogsOnError", (
        "`pulumi up` shows this message, and not the log"
    )


def test_an_archive_is_read_from_the_volume() -> None:
    graph = declare_existing(data={**IMAGES, "source": "uploads/photos.tar"})

    arguments = container(graph)["args"]
    assert arguments == [*BASE_OPTIONS, "--stage", "/everstep/uploads/photos.tar", *STAGING_OPTIONS]


def test_the_progress_of_a_copy_is_exported_on_the_port_that_the_pod_declares() -> None:
    graph = declare_existing(data={**IMAGES, "source": "uploads/photos.tar"})

    prepare = container(graph)
    (port,) = prepare["ports"]
    annotations = graph.one("Job").inputs["spec"]["template"]["metadata"]["annotations"]
    assert {"name": "EVERSTEP_METRICS_PORT", "value": str(port["containerPort"])} in prepare["env"]
    assert annotations == {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(port["containerPort"]),
    }
