"""docs/metrics.md, generated from the catalog and the rules."""

from components.docs import metric_table
from everstep.catalog.metrics import EXPORTERS, Kind
from everstep.catalog.names import JOB_STACK_PREPARATION_JOB, PREPARATION_JOB

THIRD_PARTY = ("DCGM exporter", "Kubelet")


def test_the_page_is_current() -> None:
    assert metric_table.PAGE.read_text() == metric_table.page(), "run `make docs`"


def test_the_page_names_the_job_of_each_data_preparation() -> None:
    names = [PREPARATION_JOB.format("DATASET"), JOB_STACK_PREPARATION_JOB.format("NAME")]

    assert all(f"`{name}`" in metric_table.page() for name in names)
    assert names == ["prepare-DATASET", "prepare.NAME"]


def test_every_metric_of_everstep_follows_the_naming_conventions_of_prometheus() -> None:
    own_metrics = [
        metric
        for exporter in EXPORTERS
        if not exporter.name.startswith(THIRD_PARTY)
        for metric in exporter.metrics
    ]

    for metric in own_metrics:
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER), metric.name
        assert metric.name.startswith(("everstep_", "elasticjob_")), metric.name
        assert metric.description.endswith("."), metric.name
    assert len({metric.name for metric in own_metrics}) == len(own_metrics)
