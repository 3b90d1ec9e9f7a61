"""The options of the benchmark of large runs."""

import sys

import pytest

from benchmarks import scale


@pytest.mark.parametrize("members", [["10"], ["10", "20", "20"]])
def test_an_extrapolation_from_one_number_of_members_is_refused_before_the_measurement(
    members: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--members", *members, "--extrapolate-to", "100"]
    monkeypatch.setattr(sys, "argv", ["scale", *arguments])
    monkeypatch.setattr(
        scale, "measure", lambda *_: pytest.fail("measured before the options were checked")
    )

    with pytest.raises(SystemExit):
        scale.main()

    assert "--extrapolate-to needs several --members" in capsys.readouterr().err
