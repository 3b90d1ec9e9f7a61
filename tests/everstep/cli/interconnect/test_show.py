"""The tables and the chart of an interconnect test."""

import json
from xml.etree import ElementTree

import pytest

from everstep.cli.interconnect.show import chart, report_lines
from everstep.errors import EverstepError
from everstep.interconnect.collectives import ALL_GATHER, ALL_REDUCE, SEND_RECV
from everstep.interconnect.results import Results, read
from tests.everstep.interconnect import nccl_logs

SVG = "{http://www.w3.org/2000/svg}"
SETUP = {
    "kind": "setup", "ranks": 2, "backend": "nccl", "device": "NVIDIA A100", "torch": "2.15.0",
    "nccl": "2.27.3", "max_bytes": 2**32, "largest": 2**32,
}  # fmt: skip


def measurement(collective: str, size: int, gigabytes: float, wrong: int = 0) -> dict[str, object]:
    return {
        "kind": "measurement", "collective": collective, "bytes": size, "iterations": 20,
        "seconds": size / (gigabytes * 1e9), "wrong": wrong,
    }  # fmt: skip


def results(
    *entries: dict[str, object], nccl_log: str = nccl_logs.EFA_P4D, **setup: object
) -> Results:
    lines = [json.dumps(entry) for entry in ({**SETUP, **setup}, *entries, {"kind": "end"})]
    first_lines, second_lines = nccl_log.splitlines()[:3], nccl_log.splitlines()[3:]
    return read(["\n".join([*first_lines, *lines]), "\n".join(second_lines)])


MEASUREMENTS = (
    measurement(ALL_REDUCE, 2**20, 10.0),
    measurement(ALL_REDUCE, 2**30, 20.0),
    measurement(ALL_REDUCE, 2**32, 42.0),
    measurement(ALL_GATHER, 2**32, 40.0),
)


def report(measured_results: Results) -> str:
    return "\n".join(report_lines(measured_results))


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_each_size_has_its_time_and_both_bandwidths() -> None:
    table = cells(report(results(*MEASUREMENTS)))

    assert ["all_reduce", "1", "MiB", "20", "104.9", "10", "10", "0"] in table
    assert ["all_gather", "4", "GiB", "20", "107,374.2", "40", "20", "0"] in table


def test_published_figures_stand_beside_measured_figures() -> None:
    text = report(results(*MEASUREMENTS))

    assert "this test, all_reduce                            24.00     42.00" in text
    assert "this test, all_reduce up to 1 GiB                15.00     20.00" in text
    assert "published, 4 EFA adapters (efa)                   8.24     42.04" in text
    assert "published, 1 EFA adapter (efa)                    3.02      5.89" in text
    assert "published, 0 EFA adapters (socket)                0.97      2.38" in text


def test_the_verdict_comes_from_the_log() -> None:
    assert "EFA in use: yes" in report(results(*MEASUREMENTS))
    assert "EFA in use: no, TCP sockets" in report(
        results(*MEASUREMENTS, nccl_log=nccl_logs.SOCKETS)
    )
    assert "EFA in use: no, unknown" in report(results(*MEASUREMENTS, nccl_log=""))


def test_gloo_is_never_efa_whatever_the_log_contains() -> None:
    measured_results = results(*MEASUREMENTS, backend="gloo")

    assert not measured_results.verdict.uses_efa


def test_too_little_memory_for_the_largest_size_is_stated() -> None:
    assert "memory" not in report(results(*MEASUREMENTS))
    assert "Sizes end at 1 GiB: the memory of a process" in report(
        results(*MEASUREMENTS, largest=2**30)
    )


def test_wrong_results_are_counted() -> None:
    measured_results = results(
        measurement(ALL_REDUCE, 8, 1.0, wrong=3), measurement(ALL_REDUCE, 16, 1.0, wrong=1)
    )

    assert measured_results.wrong_results == 4
    assert "4 results were wrong" in report(measured_results)


UNSUPPORTED: dict[str, object] = {
    "kind": "unsupported",
    "collective": ALL_GATHER,
    "reason": "gloo does not support it",
}


def test_a_collective_that_the_backend_lacks_is_named() -> None:
    assert "all_gather was not measured: gloo does not support it" in report(
        results(*MEASUREMENTS, UNSUPPORTED)
    )


def test_a_log_that_ends_early_is_incomplete() -> None:
    assert results(*MEASUREMENTS).is_complete
    assert not read([json.dumps(SETUP)]).is_complete
    with pytest.raises(EverstepError, match="before its processes had formed a group"):
        read(["a:1:1 [0] NCCL INFO Bootstrap : Using eth0"])


def test_the_json_has_the_verdict_and_the_bandwidths() -> None:
    value = json.loads(json.dumps(results(*MEASUREMENTS).as_value()))

    assert value["network"]["efa"] is True
    assert value["network"]["adapters"] == 4
    assert value["summary"][ALL_REDUCE]["maximum"] == pytest.approx(42.0)
    assert value["measurements"][3]["bus_bandwidth"] == pytest.approx(20.0)
    assert [row["average"] for row in value["published"]] == [8.24, 3.02, 0.97]


def test_the_rate_of_a_link_is_the_bandwidth_of_the_largest_array_sent_in_both_directions() -> None:
    sent = (
        measurement(SEND_RECV, 8, 1e-6),  # the latency of a small array says nothing about the link
        measurement(SEND_RECV, 2**30, 30.0),
    )

    assert results(*sent).as_value()["link_rate"] == pytest.approx(30.0)
    assert "Rate of a link in each direction: 30 GB/s" in report(results(*sent))


def test_without_sends_there_is_no_rate_of_a_link() -> None:
    assert results(*MEASUREMENTS).as_value()["link_rate"] is None
    assert "Rate of a link" not in report(results(*MEASUREMENTS))


@pytest.mark.parametrize(
    "entries", [MEASUREMENTS, MEASUREMENTS[:1], (measurement(ALL_REDUCE, 8, 1e-6),)]
)
def test_the_chart_has_every_measurement_and_the_published_maxima(
    entries: tuple[dict[str, object], ...],
) -> None:
    drawing = ElementTree.fromstring(chart(results(*entries)).svg())

    _, _, width, height = map(float, drawing.attrib["viewBox"].split())
    dots = [
        (float(dot.attrib["cx"]), float(dot.attrib["cy"])) for dot in drawing.iter(f"{SVG}circle")
    ]
    references = [
        path for path in drawing.iter(f"{SVG}path") if path.attrib["class"] == "reference"
    ]
    assert len(dots) == len(entries)
    assert all(0 < x < width and 0 < y < height for x, y in dots), (
        "every dot must be inside the picture"
    )
    assert len(references) == 3


def test_without_a_measurement_there_is_a_reason_instead_of_a_chart() -> None:
    with pytest.raises(EverstepError, match="all_gather was not measured: gloo does not support"):
        chart(results(UNSUPPORTED))
