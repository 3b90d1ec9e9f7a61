"""The metrics that a worker exports to Prometheus."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, MetricsHandler, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from everstep.catalog import metrics as catalog
from everstep.catalog.names import METRICS_PORT_VARIABLE
from everstep.elastic.accounting.metrics import (
    Reading,
    WorkerCollector,
    _ScrapeServer,
    serve,
    serve_if_configured,
)
from tests.ipv6 import needs_ipv6

READING = Reading(
    job="fashion",
    worker='w"0\\',
    seconds={"compute": 12.5, "form": 0.25},
    values={
        catalog.STEP: 7,
        catalog.SAMPLES: 2688,
        catalog.WORKER_STEPS: 5,
        catalog.LAST_RECOVERY: None,
    },
)


def render() -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(WorkerCollector(lambda: READING))
    return generate_latest(registry).decode()


def samples(text: str) -> dict[tuple[str, str | None], Sample]:
    return {
        (sample.name, sample.labels.get("activity")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_prometheus_parser_reads_every_value_with_its_labels() -> None:
    values = samples(render())

    assert values["everstep_worker_seconds_total", "compute"].value == 12.5
    assert values["everstep_worker_seconds_total", "form"].value == 0.25
    assert values["everstep_samples", None].value == 2688
    assert values["everstep_worker_steps_total", None].value == 5
    assert {sample.labels["worker"] for sample in values.values()} == {'w"0\\'}
    assert {sample.labels["elasticjob"] for sample in values.values()} == {"fashion"}


def test_a_value_without_a_measurement_is_absent_and_not_zero() -> None:
    assert ("everstep_last_recovery_seconds", None) not in samples(render())


@pytest.fixture(scope="module")
def metrics_port() -> Iterator[int]:
    """Serve the metrics of a worker; yield the port."""
    server = serve(0, lambda: READING)
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_a_worker_responds_to_scrapes_and_nothing_else(metrics_port: int) -> None:
    url = f"http://127.0.0.1:{metrics_port}"
    with urllib.request.urlopen(f"{url}/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        assert samples(response.read().decode())["everstep_step", None].value == 7
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{url}/secrets")


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=needs_ipv6)])
def test_a_worker_is_scraped_by_ipv4_and_ipv6(metrics_port: int, host: str) -> None:
    with urllib.request.urlopen(f"http://{host}:{metrics_port}/metrics") as response:
        assert response.status == 200


def test_no_server_listens_unless_a_port_is_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(METRICS_PORT_VARIABLE, raising=False)

    assert serve_if_configured(lambda: READING) is None


@pytest.mark.parametrize("port", ["a port", "99999999"])
def test_an_unusable_port_is_logged_and_training_continues(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, port: str
) -> None:
    monkeypatch.setenv(METRICS_PORT_VARIABLE, port)

    assert serve_if_configured(lambda: READING) is None
    assert port in caplog.text


@pytest.mark.parametrize(("error", "is_printed"), [(BrokenPipeError, False), (ValueError, True)])
def test_a_scrape_whose_client_is_gone_prints_no_traceback(
    error: type[Exception], is_printed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with _ScrapeServer(("", 0), MetricsHandler) as server:
        try:
            raise error
        except error:
            server.handle_error(None, ("127.0.0.1", 1))

    assert ("Traceback" in capsys.readouterr().err) == is_printed
