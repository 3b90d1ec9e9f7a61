"""The conformance suite itself: expected failures of another controller, and the readiness of nodes."""

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.controller.conformance.conftest import pytest_pyfunc_call
from tests.controller.conformance.fake_kubelet import accepts_workers


def item(*, marked: bool) -> Any:
    marker = SimpleNamespace(args=("it panics",)) if marked else None
    return SimpleNamespace(get_closest_marker=lambda _: marker)


def started_hook(test: Any) -> Generator[None, object, object]:
    """Return the hook of a test, at the point where the test runs."""
    hook = pytest_pyfunc_call(test)
    next(hook)
    return hook


@pytest.fixture
def upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERSTEP_CONFORMANCE_UPSTREAM", "1")


@pytest.mark.usefixtures("upstream")
def test_a_failed_assertion_of_a_marked_test_is_expected() -> None:
    with pytest.raises(pytest.xfail.Exception, match="it panics: not within 15 s"):
        started_hook(item(marked=True)).throw(AssertionError("not within 15 s\nstatus: ..."))


@pytest.mark.usefixtures("upstream")
def test_an_error_other_than_a_failed_assertion_fails_a_marked_test() -> None:
    with pytest.raises(OSError, match="refused"):
        started_hook(item(marked=True)).throw(OSError("connection refused"))


@pytest.mark.usefixtures("upstream")
def test_a_marked_test_that_passes_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="passes, but is marked"):
        started_hook(item(marked=True)).send(True)


@pytest.mark.usefixtures("upstream")
def test_a_failed_assertion_fails_a_test_without_a_mark() -> None:
    with pytest.raises(AssertionError, match="wrong"):
        started_hook(item(marked=False)).throw(AssertionError("wrong"))


def test_marks_have_no_effect_on_the_maintained_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVERSTEP_CONFORMANCE_UPSTREAM", raising=False)

    with pytest.raises(AssertionError, match="wrong"):
        started_hook(item(marked=True)).throw(AssertionError("wrong"))


@pytest.mark.parametrize(
    ("taint", "expected"),
    [("everstep.dev/spot", True), ("node.kubernetes.io/not-ready", False)],
    ids=["of a pool", "of the node controllers"],
)
def test_only_temporary_taints_delay_the_readiness_of_a_node(taint: str, expected: bool) -> None:
    node = SimpleNamespace(
        spec=SimpleNamespace(taints=[SimpleNamespace(key=taint)], unschedulable=None)
    )

    assert accepts_workers(node) is expected
