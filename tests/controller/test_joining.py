"""The workers that have joined the group, from their metrics."""

from dataclasses import replace
from datetime import timedelta

import pytest

from controller.joining import JoinReader, has_joined
from controller.worker_metrics import scrape
from everstep.catalog.metrics import WORKER_STEPS
from everstep.elastic.accounting.metrics import Reading, serve
from tests.controller.builders import NOW, pod
from tests.http_servers import stopping

FIRST = pod(0, address="10.0.0.1")
SECOND = pod(1, address="10.0.0.2")


def metrics(worker: str, steps: object) -> str:
    return f'everstep_worker_steps_total{{elasticjob="job",worker="{worker}"}} {steps}\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (metrics(FIRST.name, "1.0"), True),
        (metrics(FIRST.name, "0.0"), False),
        (metrics(FIRST.name, "NaN"), False),
        (metrics(FIRST.name, "many"), False),
        (metrics("other-worker-0", "7.0"), False),
        ('everstep_step{worker="job-worker-0"} 7\n', False),
        ("", False),
    ],
)
def test_a_worker_has_joined_once_it_has_completed_a_step_itself(text: str, expected: bool) -> None:
    assert has_joined(text, FIRST) is expected


@pytest.mark.parametrize(("steps", "expected"), [(0, False), (1, True)])
def test_the_metrics_that_a_worker_serves_show_whether_it_has_joined(
    steps: int, expected: bool
) -> None:
    reading = Reading(
        job="job", worker=FIRST.name, seconds={"compute": 1.0}, values={WORKER_STEPS: steps}
    )

    with stopping(serve(0, lambda: reading)) as port:
        assert has_joined(scrape("127.0.0.1", port, 30), FIRST) is expected


def test_a_worker_is_scraped_until_it_has_joined() -> None:
    addresses, responses = list[str](), {FIRST.address: metrics(FIRST.name, 3)}

    def respond(address: str) -> str:
        addresses.append(address)
        if address not in responses:
            raise OSError
        return responses[address]

    reader = JoinReader(respond)
    assert reader.joined_pods("u", [FIRST, SECOND]) == {FIRST.uid}
    responses = {SECOND.address: metrics(SECOND.name, 1)}
    assert reader.joined_pods("u", [FIRST, SECOND]) == {FIRST.uid, SECOND.uid}
    assert sorted(addresses) == [FIRST.address, SECOND.address, SECOND.address]


def test_a_worker_with_a_new_process_or_pod_has_to_join_again() -> None:
    responses = {FIRST.address: metrics(FIRST.name, 3)}
    reader = JoinReader(lambda address: responses[address])
    assert reader.joined_pods("u", [FIRST]) == {FIRST.uid}

    responses[FIRST.address] = metrics(FIRST.name, 0)

    restarted_pod = replace(FIRST, started=NOW + timedelta(seconds=5))
    assert reader.joined_pods("u", [restarted_pod]) == frozenset()
    assert reader.joined_pods("u", [replace(FIRST, uid="other")]) == frozenset()


def test_a_worker_that_does_not_run_or_has_no_address_is_not_scraped() -> None:
    def refuse(address: str) -> str:
        raise AssertionError(address)

    pods = [pod(0, "Pending", address="10.0.0.1"), pod(1, address="")]
    assert JoinReader(refuse).joined_pods("u", pods) == frozenset()


def test_a_job_whose_move_has_ended_is_forgotten() -> None:
    responses = [metrics(FIRST.name, 3), metrics(FIRST.name, 0)]
    reader = JoinReader(lambda _: responses.pop(0))
    assert reader.joined_pods("u", [FIRST]) == {FIRST.uid}

    reader.forget("u")

    assert reader.joined_pods("u", [FIRST]) == frozenset()
