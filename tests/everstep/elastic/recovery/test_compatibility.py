"""The comparison of a group's workers, with real process groups."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from everstep.elastic.recovery import compatibility
from everstep.elastic.recovery.compatibility import (
    MAX_DIFFERENCES,
    IncompatibleWorkerError,
    check_group,
    describe_differences,
)
from everstep.elastic.transport.abortable_group import AbortableGroup
from tests.everstep.elastic.transport.process_groups import run

IDENTITY = {"program": "a1", "setting model": "resnet18", "data": "x" * 200}


def results_with_joiner(port: int, joiner_identity: dict[str, str]) -> list[object]:
    """Return the results of two workers and of a joiner with another identity."""

    def work(process_group: AbortableGroup) -> object:
        try:
            return check_group(
                process_group, joiner_identity if process_group.rank == 2 else IDENTITY
            )
        except IncompatibleWorkerError as error:
            return error.problem

    return run(port, 3, work)


def test_only_a_joiner_with_other_settings_is_incompatible_and_names_what_differs(
    port: int,
) -> None:
    first_result, second_result, problem = results_with_joiner(
        port, {**IDENTITY, "setting model": "resnet50", "data": "y" * 200}
    )

    assert (first_result, second_result) == (3, 3), "all three are on this machine"
    assert "the worker of rank 2 is incompatible with the others" in str(problem)
    assert "setting model is resnet50 here and resnet18 on rank 0" in str(problem)
    assert "data is a string of 200 characters with digest" in str(problem)
    assert "program" not in str(problem), "it is equal"
    assert "xxx" not in str(problem), "a long value would hide the others"


def test_a_setting_that_one_side_lacks_differs(port: int) -> None:
    *_, problem = results_with_joiner(port, {**IDENTITY, "setting seed": "1"})

    assert "setting seed is 1 here and absent on rank 0" in str(problem)


def test_the_error_names_no_values_if_rank_0_publishes_none(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compatibility, "_publish", lambda *_: None)
    monkeypatch.setattr(compatibility, "REFERENCE_SECONDS", 0.2)

    *_, problem = results_with_joiner(port, {**IDENTITY, "program": "b2"})

    assert "its program, model, data set or settings differ" in str(problem)


@given(
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=20),
    st.dictionaries(st.text(max_size=9), st.text(max_size=9), min_size=1, max_size=20),
)
@example({}, {"setting word": "absent"})
def test_differences_are_named_up_to_a_limit(own: dict[str, str], other: dict[str, str]) -> None:
    text = describe_differences(own, other)

    names = {name for name in {*own, *other} if own.get(name) != other.get(name)}
    assert text.count(" on rank 0") == min(len(names), MAX_DIFFERENCES)
    if len(names) > MAX_DIFFERENCES:
        assert text.endswith(f"and {len(names) - MAX_DIFFERENCES} more")
