"""docs/metrics.md, generated from the catalog and the rules."""

from components.docs import metric_table
from everstep.catalog.metrics import EXPORTERS, Kind

THIRD_PARTY = ("DCGM exporter", "Kubelet")


def test_the_page_is_current() -> None:
    assert metric_table.PAGE.read_text() == metric_table.page(), "run `make docs`"


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
