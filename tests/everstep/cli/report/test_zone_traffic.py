"""Data that crossed zones: properties of the ring, and recorded runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.report.zone_traffic import ZoneTraffic, ring_bytes, zone_traffic
from tests.everstep.cli.recorded_run import (
    STATE_BYTES,
    SUMMED_BYTES,
    RecordedRun,
    drill,
    two_zones,
)
from tests.everstep.cli.report.test_fold import fold_run

ZONES = {"gpu-0": "zone-a", "gpu-1": "zone-a", "gpu-2": "zone-b", "gpu-3": "zone-b"}
SIZE = st.integers(0, 10**9)
GROUPS = st.lists(st.sampled_from("abc"), min_size=1, max_size=8)


@given(size=st.integers(1, 8), summed_bytes=SIZE)
def test_within_one_zone_no_data_crosses_zones(size: int, summed_bytes: int) -> None:
    assert ring_bytes(["a"] * size, summed_bytes) == 0


@given(zones=GROUPS, summed_bytes=SIZE)
def test_crossing_data_is_at_most_all_data_and_at_least_one_round_trip(
    zones: list[str], summed_bytes: int
) -> None:
    crossing_bytes, ranks = ring_bytes(zones, summed_bytes), len(zones)

    bytes_sent_per_rank = 2 * summed_bytes * (ranks - 1) / ranks
    assert crossing_bytes <= ranks * bytes_sent_per_rank * (1 + 1e-9)
    if len(set(zones)) > 1:
        assert crossing_bytes >= 2 * bytes_sent_per_rank * (1 - 1e-9), (
            "a ring that leaves a zone comes back"
        )


@given(zones=GROUPS, summed_bytes=SIZE, shift=st.integers(0, 7))
def test_neither_names_of_zones_nor_the_first_rank_nor_the_direction_matter(
    zones: list[str], summed_bytes: int, shift: int
) -> None:
    renamed_zones = [{"a": "b", "b": "c", "c": "a"}[zone] for zone in zones]
    rotated_zones = [*zones[shift % len(zones) :], *zones[: shift % len(zones)]]

    crossing_bytes = ring_bytes(zones, summed_bytes)
    assert crossing_bytes == ring_bytes(renamed_zones, summed_bytes)
    assert (
        crossing_bytes
        == ring_bytes(rotated_zones, summed_bytes)
        == ring_bytes(zones[::-1], summed_bytes)
    )


@given(zones=GROUPS, summed_bytes=SIZE, factor=st.integers(2, 9))
def test_traffic_is_proportional_to_the_size_of_the_model(
    zones: list[str], summed_bytes: int, factor: int
) -> None:
    larger_traffic = ring_bytes(zones, factor * summed_bytes)

    assert larger_traffic == pytest.approx(factor * ring_bytes(zones, summed_bytes))


def test_a_move_sends_gradients_while_the_group_spans_zones_and_the_states_of_new_workers() -> None:
    traffic = zone_traffic(two_zones().run(), ZONES)

    # 120 steps of four ranks, two in each zone: two links of the ring cross, each with 2 x 3/4 of the gradients.
    assert traffic == ZoneTraffic(
        gradient_bytes=120 * 2 * 2 * 3 / 4 * SUMMED_BYTES, state_bytes=2 * STATE_BYTES
    )


def test_a_state_from_a_worker_of_the_same_zone_does_not_cross_zones(
    recorded_run: RecordedRun,
) -> None:
    recorded_run.form("gpu-0").train(2).regroup("gpu-0", "gpu-1", "gpu-2").train(1)

    assert zone_traffic(recorded_run.run(), ZONES).state_bytes == STATE_BYTES, (
        "the state that gpu-2 received"
    )


def test_steps_on_a_machine_in_an_unknown_zone_are_counted_separately() -> None:
    zones = {node: zone for node, zone in ZONES.items() if node != "gpu-3"}

    traffic = zone_traffic(two_zones().run(), zones)

    assert traffic == ZoneTraffic(state_bytes=STATE_BYTES, unknown_steps=120 + 44)


@pytest.mark.parametrize("example", [two_zones(), drill()], ids=["move", "drill"])
def test_a_folded_record_has_the_same_traffic(example: RecordedRun) -> None:
    record = fold_run(example, recent=5)
    assert record.blocks

    assert zone_traffic(record, ZONES) == zone_traffic(example.run(), ZONES)


def test_the_gradients_of_a_repeated_step_are_sent_again(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0", "gpu-2").train(10)
    recorded_run.form("gpu-0", "gpu-2", resume_from=7).train(1)

    assert zone_traffic(recorded_run.run(), ZONES).gradient_bytes == 11 * 2 * SUMMED_BYTES


def test_a_journal_of_an_older_version_has_no_traffic(recorded_run: RecordedRun) -> None:
    recorded_run.form("gpu-0", "gpu-2").train(3)
    for line in recorded_run.journals["fashion-worker-0"]:
        line.pop("summed_bytes", None)
    recorded_run.write("gpu-2", "generation", generation=1, rank=1, received_bytes=[7])
    for line in recorded_run.journals["fashion-worker-2"]:
        line.pop("summed_bytes", None)

    assert zone_traffic(recorded_run.run(), ZONES) == ZoneTraffic()
