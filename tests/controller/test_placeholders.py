"""The manifest of a placeholder."""

from controller.placeholders import render_placeholder
from tests.controller.builders import TEMPLATE, job, spec


def test_a_placeholder_has_the_resources_of_the_pod() -> None:
    """With fewer resources it would find a machine on which no worker fits."""
    resources = {"requests": {"cpu": "4"}}
    body = spec()
    body["replicaSpecs"]["Worker"]["template"] = {
        "spec": {**TEMPLATE["spec"], "resources": resources}
    }
    elastic_job = job(body)
    assert elastic_job.spec is not None

    assert render_placeholder(elastic_job, elastic_job.spec, "a", 0)["spec"]["resources"] == (
        resources
    )
