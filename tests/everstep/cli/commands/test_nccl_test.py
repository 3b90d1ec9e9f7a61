"""`everstep nccl-test`: options that are refused, and results that are errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from everstep.cli.commands import nccl_test as command
from everstep.cli.commands.nccl_test import nccl_test
from everstep.errors import EverstepError
from everstep.interconnect.collectives import ALL_REDUCE
from tests.everstep.cli.interconnect.test_show import SETUP, measurement


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"local": 1}, "one process has no interconnect"),
        ({"nodes": 1}, "one process has no interconnect"),
        ({"max_size": "8G"}, "--max-size '8G' is not a size from 8 B to 4 GiB"),
        ({"min_size": "4"}, "--min-size '4' is not a size"),
        ({"min_size": "one"}, "--min-size 'one' is not a size"),
        ({"min_size": "2M", "max_size": "1M"}, "--min-size 2M is larger than --max-size 1M"),
        ({"backend": "mpi"}, "--backend is 'mpi'"),
        ({"collective": ["broadcast"]}, "--collective is 'broadcast'"),
        ({"plot": Path("x.png")}, "--plot x.png does not end with .svg"),
        ({"plot": Path("out/x")}, "--plot out/x does not end with .svg"),
        (
            {"plot": Path("/dev/null/x.svg")},
            "--plot /dev/null/x.svg cannot be written: /dev/null is not",
        ),
        ({"nodes": 2, "efa": 0}, "--nodes and --efa cannot be used with --local"),
        ({"stack": "eks-dev", "wait": 7}, "--stack and --wait cannot be used with --local"),
        ({"log": Path("/proc")}, "--log /proc cannot be written: it is a folder"),
    ],
)
def test_an_impossible_test_is_refused_before_anything_starts(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(EverstepError, match=message):
        nccl_test(**{"local": 2, **options})


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([measurement(ALL_REDUCE, 8, 1.0)], "the test ended before its last size"),
        (
            [measurement(ALL_REDUCE, 8, 1.0, wrong=3), {"kind": "end"}],
            "3 collective results were wrong",
        ),
    ],
)
def test_an_incomplete_test_and_wrong_results_are_errors_after_the_table(
    entries: list[dict[str, object]],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = "\n".join(json.dumps(entry) for entry in (SETUP, *entries))
    monkeypatch.setattr(command, "run_locally", lambda *_: [log])

    with pytest.raises(EverstepError, match=message):
        nccl_test(local=2)

    assert "all_reduce" in capsys.readouterr().out
