"""What a worker shows to Prometheus."""

import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from everstep.elastic import metrics
from everstep.elastic.metrics import Reading, offer, render, serve

READING = Reading(
    labels={"job": "fashion", "worker": 'w"0\\'},
    seconds={"compute": 12.5, "form": 0.25},
    step=7,
    samples=2688,
    generation=3,
    members=2,
    last_recovery=None,
)


def samples(text):
    return {
        (sample.name, sample.labels.get("activity")): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_own_parser_reads_every_figure_with_its_labels():
    found = samples(render(READING))

    assert found["everstep_worker_seconds_total", "compute"].value == 12.5
    assert found["everstep_samples", None].value == 2688
    assert {sample.labels["worker"] for sample in found.values()} == {'w"0\\'}
    assert {sample.labels["job"] for sample in found.values()} == {"fashion"}


def test_what_has_not_been_measured_yet_is_absent_and_not_zero():
    assert ("everstep_last_recovery_seconds", None) not in samples(render(READING))


def test_a_worker_answers_scrapes_and_nothing_else():
    server = serve(0, lambda: READING)
    where = f"http://127.0.0.1:{server.server_port}"
    try:
        with urllib.request.urlopen(f"{where}/metrics") as answer:
            assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
            assert samples(answer.read().decode())["everstep_step", None].value == 7
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{where}/secrets")
    finally:
        server.shutdown()
        server.server_close()


def test_nothing_listens_unless_a_port_is_named(monkeypatch):
    monkeypatch.delenv(metrics.PORT_VARIABLE, raising=False)

    assert offer(lambda: READING) is None


@pytest.mark.parametrize("wrong", ["a port", "99999999"])
def test_a_port_that_cannot_be_had_is_said_and_costs_no_training(monkeypatch, caplog, wrong):
    monkeypatch.setenv(metrics.PORT_VARIABLE, wrong)

    assert offer(lambda: READING) is None
    assert wrong in caplog.text
