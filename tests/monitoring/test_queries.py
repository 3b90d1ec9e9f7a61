"""Every query of the rules and dashboards, in a real Prometheus that scrapes real exporters.

The workers belong to a launcher's run in which one worker was killed, the controller's metrics come from real
plans for a job, the GPUs are the twin's, and a machine of a twin runs a kubelet. The metric of a kubelet's serving
certificate is not covered: only a cloud approves such certificates, so the twin's kubelets have none. The cost of past
hours is written into the server's data before it starts.
"""

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from components.docs.metric_table import read_rules
from components.platform.dashboards import DASHBOARDS
from everstep.catalog.metrics import EXPORTERS, KUBELET_SERVER_CERTIFICATE
from tests.monitoring.exporters import (
    JOB,
    PRICES,
    alternating_pods,
    controller,
    data_preparation,
    gpu_node,
    kubelet,
    lose_worker,
    training,
)
from tests.monitoring.prometheus import Prometheus, backfill, prometheus_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.twin, pytest.mark.timeout(600)]

DATA_SECONDS = 240  # time for data to appear on a loaded machine
VARIABLES = {"$elasticjob": JOB, "$node": ".*", "$__rate_interval": "1m"}
SELECTOR = re.compile(
    r"(?:everstep|elasticjob|node_gpu|DCGM|kubelet)[\w:]*[_:][\w:]+(?:\{[^}]*\})?"
)
PAST_HOURS, PAST_USD_PER_HOUR = 48, 1.75


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Yield a Prometheus that scrapes a run, a data preparation, a controller, a GPU node and a kubelet."""
    folder = tmp_path_factory.mktemp("monitoring")
    patch = pytest.MonkeyPatch()
    (folder / "prices.yaml").write_text(PRICES)
    with ExitStack() as stack:
        stack.callback(patch.undo)
        patch.setenv("CLOUDTWIN_STATE", str(tmp_path_factory.mktemp("twins")))
        launcher, ports = stack.enter_context(training(folder))
        lose_worker(folder, launcher)
        targets = {
            **{f"worker-{port}": port for port in ports},
            "data": stack.enter_context(data_preparation(folder)),
            "controller": stack.enter_context(controller(alternating_pods(), 3)),
            "gpu": stack.enter_context(gpu_node()),
            "kubelet": stack.enter_context(kubelet()),
        }
        backfill(folder, "everstep:cost_usd_per_hour:sum", PAST_USD_PER_HOUR, PAST_HOURS)
        yield stack.enter_context(prometheus_server(folder, targets, folder / "prices.yaml"))


def with_values(query: str) -> str:
    """Return a query with values in place of the dashboard's variables."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


def wait_for_data(prometheus: Prometheus, query: str) -> None:
    """Wait until a query returns a number.

    Raises:
        AssertionError: Prometheus refuses it, or there is no data in time.
    """
    wait_until(
        lambda: any(sample["value"][1] != "NaN" for sample in prometheus.query(query)),
        f"there are data for {query}",
        DATA_SECONDS,
        details=prometheus.log.read_text,
        interval_seconds=0.2,
    )


PANELS = [
    (f"{dashboard.uid}: {panel.title}", query.expression)
    for dashboard in DASHBOARDS
    for panel in dashboard.panels
    for query in panel.queries
]


@pytest.mark.parametrize(("panel", "query"), PANELS)
def test_every_panel_has_data(prometheus: Prometheus, panel: str, query: str) -> None:
    wait_for_data(prometheus, with_values(query))


def test_every_annotation_can_be_evaluated(prometheus: Prometheus) -> None:
    annotations = [entry for dashboard in DASHBOARDS for entry in dashboard.annotations]
    assert annotations
    for annotation in annotations:
        prometheus.query(with_values(annotation.expression))


def test_every_variable_has_values(prometheus: Prometheus) -> None:
    for dashboard in DASHBOARDS:
        for variable in dashboard.variables:
            wait_for_data(prometheus, f'{variable.metric}{{{variable.key}!=""}}')


def test_every_series_that_a_rule_selects_has_data(prometheus: Prometheus) -> None:
    for rule in read_rules():
        for selector in set(SELECTOR.findall(rule["expr"])) - {KUBELET_SERVER_CERTIFICATE.name}:
            wait_for_data(prometheus, selector)


def test_the_certificate_alert_reads_the_lifetime_of_a_real_certificate(
    prometheus: Prometheus,
) -> None:
    rule = next(rule for rule in read_rules() if rule.get("alert") == "EverstepCertificateExpires")
    in_two_years = rule["expr"].replace("7 * 86400", "730 * 86400")
    wait_for_data(prometheus, in_two_years)

    (sample,) = prometheus.query(in_two_years)

    assert 300 * 86400 < float(sample["value"][1]) < 366 * 86400
    assert prometheus.query(rule["expr"]) == [], "it does not expire within a week"


def test_every_recording_rule_has_data(prometheus: Prometheus) -> None:
    for rule in read_rules():
        if "record" in rule:
            wait_for_data(prometheus, rule["record"])


def test_the_cost_of_thirty_days_is_the_sum_of_their_full_hours(prometheus: Prometheus) -> None:
    wait_for_data(prometheus, "everstep:cost_usd:sum30d")

    (sample,) = prometheus.query("everstep:cost_usd:sum30d")

    # At a full hour the current cost is included.
    costs = [hours * PAST_USD_PER_HOUR for hours in (PAST_HOURS, PAST_HOURS + 1)]
    assert float(sample["value"][1]) in [pytest.approx(cost) for cost in costs]


def test_prometheus_evaluates_every_rule_without_an_error(prometheus: Prometheus) -> None:
    wait_for_data(prometheus, "everstep:cost_usd_per_hour:sum")

    errors = {rule["name"]: rule.get("lastError", "") for rule in prometheus.rules()}

    assert not {name: error for name, error in errors.items() if error}


def test_every_metric_of_the_catalog_is_exported_with_its_labels(prometheus: Prometheus) -> None:
    for exporter in EXPORTERS:
        for metric in set(exporter.metrics) - {KUBELET_SERVER_CERTIFICATE}:
            for series in metric.series:
                wait_for_data(prometheus, series)
                labels = prometheus.query(series)[0]["metric"]
                assert {*exporter.labels, *metric.labels} <= set(labels), metric.name


def test_every_metric_that_is_exported_is_in_the_catalog(prometheus: Prometheus) -> None:
    wait_for_data(prometheus, "everstep_worker_steps_total")
    names = prometheus.get("label/__name__/values")
    catalog_names = {
        series for exporter in EXPORTERS for metric in exporter.metrics for series in metric.series
    }
    # prometheus_client adds the time of creation of each counter and histogram.
    exported_names = {
        name
        for name in names
        if name.startswith(("everstep_", "elasticjob_")) and not name.endswith("_created")
    }

    assert exported_names, "there is something to compare"
    assert exported_names <= catalog_names
