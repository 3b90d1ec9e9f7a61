"""`everstep plan` with the stacks of the repository: table, JSON, picture, refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from everstep.cli.commands import plan as command
from everstep.cli.commands.plan import plan
from everstep.cli.live_prices import LivePrice, LivePrices
from everstep.errors import EverstepError
from tests.everstep.cli.projects import REPOSITORY, enter_project, shipped_stack


@pytest.fixture(autouse=True)
def in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)


def plan_output(capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    plan(**{"stack": "eks-prod", "histories": 3, "work": 6.0, **options})
    return capsys.readouterr().out


def test_the_table_has_a_line_for_each_choice(capsys: pytest.CaptureFixture[str]) -> None:
    output = plan_output(capsys, deadline="24h", budget=500.0)

    assert "6 machine-hours on 6 machines: at least 1.1 h" in output
    for choice in ("spot, 1 zone ", "spot, 3 zones, fallback ", "on demand only "):
        assert f"\n{choice}" in output
    assert "in time" in output
    assert "suspended" in output
    assert "job.onDemand its on-demand machines" in output, (
        "a plan names the keys that make its choices"
    )


def test_the_plan_names_the_on_demand_machines_that_the_pools_allow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = plan_output(capsys)
    report = json.loads(plan_output(capsys, as_json=True))

    assert "pools allow 2 on-demand machines at a time" in output
    assert "Raise fallbackNodes" in output
    assert report["max_on_demand"] == 2


def pools_stack(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    base: str,
    pools: list[dict[str, Any]],
    **cluster: Any,
) -> None:
    """Enter a project with the stack `pools`: a stack of the repository with these pools."""
    content = shipped_stack(base)
    stack_cluster = content["config"]["everstep:cluster"]
    del stack_cluster["gpuPool"]
    stack_cluster |= {"gpuPools": pools, **cluster}
    enter_project(folder, monkeypatch, {"pools": yaml.safe_dump(content)})


def test_a_plan_uses_the_zones_prices_and_limits_of_the_pools(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = [
        {"name": "t4", "zone": "2", "vmSize": "Standard_NC4as_T4_v3", "maxNodes": 6},
        {"name": "a100", "zone": "3", "vmSize": "Standard_NC24ads_A100_v4", "maxNodes": 6},
    ]
    pools_stack(tmp_path, monkeypatch, "aks-prod", pools, minGpuMemoryGib=15)

    report = json.loads(plan_output(capsys, stack="pools", as_json=True))

    assert report["zones"] == ["2", "3"]
    assert [choice["zones"] for choice in report["choices"]] == 3 * [1, 1, 2, 2, 1]
    types = [choice["machine_type"] for choice in report["choices"][::5]]
    assert types == [None, "Standard_NC4as_T4_v3", "Standard_NC24ads_A100_v4"]
    t4, a100 = report["prices"]["spot_by_zone"]
    assert t4 < a100 == report["prices"]["spot"], "without a zone, the highest price"
    output = plan_output(capsys, stack="pools")
    assert f"{t4:.3f} USD an hour on spot in 2, {a100:.3f} USD an hour on spot in 3" in output


def test_reserved_machines_are_always_available_and_never_called_spot(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reservation: dict[str, Any] = {
        "capacity": "onDemand",
        "reservation": {"id": "cr-0123456789abcdef0"},
    }
    pools = [
        {"name": "r", "zone": "us-east-1a", "instanceTypes": ["g5.xlarge"], **reservation},
        {"name": "s", "zone": "us-east-1b", "instanceTypes": ["g6.xlarge"]},
    ]
    pools_stack(tmp_path, monkeypatch, "eks-prod", pools)

    output = plan_output(capsys, stack="pools")
    report = json.loads(plan_output(capsys, stack="pools", as_json=True))

    assert "\nreserved, 1 zone " in output
    assert "\nreserved and spot, 2 zones, fallback " in output
    assert "\ng6.xlarge: spot, 2 zones, fallback " in output
    assert "beyond its reservation (at most 6) in us-east-1a" in output
    assert ", with its reservation." in output
    assert "billed for the whole duration, used or not" in output
    first_row = report["choices"][0]
    assert first_row["seconds"]["p10"] == first_row["seconds"]["p90"], (
        "no spot history affects reserved machines"
    )
    assert first_row["complete"] == 1
    hours = first_row["seconds"]["median"] / 3600
    assert first_row["usd"]["median"] > 6 * 1.006 * hours, "the on-demand rate of six machines"


def test_a_price_above_the_ceiling_is_reported_before_anything_is_bought(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = {"vmSize": "Standard_NC4as_T4_v3", "maxNodes": 6}
    pools = [{"name": "t4", "zone": "1", "maxPrice": 0.01, **size}]
    pools_stack(tmp_path, monkeypatch, "aks-prod", pools)

    report = json.loads(plan_output(capsys, stack="pools", as_json=True))

    assert "above its maxPrice 0.01" in report["warnings"][0]
    assert report["choices"][0]["complete"] == 0, "it gets no spot machine"
    plan(stack="pools", histories=1, work=6.0)
    streams = capsys.readouterr()
    assert "above its maxPrice 0.01" in streams.err
    assert "no machine is bought" in streams.out


def test_zones_without_a_trace_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    data = {"us-east-1b": [6], "us-east-1c": [6]}
    trace.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": data}))

    output = plan_output(capsys, trace=[trace])

    assert "Not planned, because no trace was given for them: us-east-1a." in output
    assert "Not planned" not in plan_output(capsys)


def test_types_and_policies_are_compared_and_all_shows_each_combination(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"deadline": "24h", "histories": 1, "speed": ["g6.xlarge=2"]}
    output = plan_output(capsys, **options)
    report = json.loads(plan_output(capsys, as_json=True, **options))

    assert "\nspot, 3 zones, fallback by uniform progress " in output
    assert "\ng6.xlarge: spot, 3 zones, fallback " in output
    assert "g6.xlarge: spot, 1 zone" not in output
    assert "--all" in output
    assert "\ng6.xlarge: spot, 1 zone, fallback by greedy " in plan_output(
        capsys, show_all=True, **options
    )
    rows = {
        row["machine_type"]: row
        for row in report["choices"]
        if row["zones"] == 3 and row["policy"] == "latest start"
    }
    assert rows["g6.xlarge"]["seconds"]["median"] < rows["g5.xlarge"]["seconds"]["median"]
    assert {item["name"]: item["speed"] for item in report["machine_types"]}["g6.xlarge"] == 2


def test_a_deadline_that_only_a_faster_type_meets_is_planned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"work": 72.0, "deadline": "10h", "histories": 1}

    output = plan_output(capsys, speed=["g6e.xlarge=2"], **options)

    assert "\ng6e.xlarge: spot, 3 zones, fallback " in output
    with pytest.raises(EverstepError, match=r"--deadline 10h cannot be met.*at least 12\.1 h"):
        plan_output(capsys, **options)


def test_the_work_is_reported_as_an_assumption_unless_it_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "The work is an assumption, not the job" in plan_output(capsys, work=None, histories=1)
    options = {"work": None, "images_per_second": 1000.0, "samples": 1_281_167, "histories": 1}
    assert "epochs of 1,281,167 samples at 1000 per second" in plan_output(capsys, **options)


def limited_stack(folder: Path, monkeypatch: pytest.MonkeyPatch, job: dict[str, Any]) -> None:
    """Enter a project with the stack `limited`: eks-prod with these job keys set."""
    content = shipped_stack("eks-prod")
    content["config"]["everstep:job"] |= job
    enter_project(folder, monkeypatch, {"limited": yaml.safe_dump(content)})


def test_options_override_the_limits_of_the_stack(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"deadline": "24h", "budgetUsd": 500, "onDemand": "never"}
    limited_stack(tmp_path, monkeypatch, limits)

    from_stack = json.loads(plan_output(capsys, stack="limited", histories=1, as_json=True))
    from_options = json.loads(
        plan_output(
            capsys, stack="limited", histories=1, deadline="30h", budget=400.0, as_json=True
        )
    )

    assert (from_stack["deadline_seconds"], from_stack["budget_usd"]) == (24 * 3600, 500)
    assert (from_options["deadline_seconds"], from_options["budget_usd"]) == (30 * 3600, 400)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"deadline": "1h"}, r"job.deadline 1h cannot be met.*at least 1.1 h"),
        (
            {"deadline": "2020-01-01T00:00:00Z"},
            r"job.deadline 2020.* is not within the next 90 days",
        ),
        (
            {"budgetUsd": 3},
            r"job.budgetUsd 3 is below the cost of one hour.*6 machines of type g6.xlarge",
        ),
    ],
)
def test_a_limit_of_a_stack_that_cannot_be_met_is_refused_with_its_key(
    job: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited_stack(tmp_path, monkeypatch, {"onDemand": "never", **job})

    with pytest.raises(EverstepError, match=message):
        plan(stack="limited", work=6.0, histories=1)


def test_the_same_seed_gives_the_same_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan_text, repeated_text, other_text = (
        plan_output(capsys, seed=seed, as_json=True) for seed in (1, 1, 7)
    )

    assert plan_text == repeated_text
    assert json.loads(plan_text)["choices"] != json.loads(other_text)["choices"]


def test_a_trace_that_the_user_gives_is_replayed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "mine.json"
    trace.write_text('{"metadata": {"gap_seconds": 300}, "data": [6, 6, 6, 0]}')

    plan_json = json.loads(plan_output(capsys, trace=[trace], as_json=True))

    assert plan_json["zones"] == ["mine"]
    assert [choice["on_demand"] for choice in plan_json["choices"][:3]] == [
        "never",
        "fallback",
        "always",
    ]
    assert plan_json["choices"][0]["complete"] == 1


def test_a_trace_of_a_zone_that_the_stack_does_not_have_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "mixed.json"
    data = {"us-east-1a": [6], "us-east-1z": [6]}
    trace.write_text(json.dumps({"metadata": {"gap_seconds": 300}, "data": data}))

    output = plan_output(capsys, trace=[trace])

    assert "Not zones of the stack: us-east-1z." in output
    assert "Not zones of the stack" not in plan_output(capsys)


def test_a_job_that_never_completes_is_shown_as_such(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "none.json"
    trace.write_text('{"metadata": {"gap_seconds": 300}, "data": [0]}')

    assert "never: not complete within" in plan_output(capsys, trace=[trace])
    plan_json = json.loads(plan_output(capsys, trace=[trace], as_json=True))
    assert plan_json["choices"][0]["seconds"]["median"] is None


def test_the_plan_is_drawn_to_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan_output(capsys, plot=tmp_path / "plan.svg")

    assert (tmp_path / "plan.svg").read_text().startswith("<svg")


def test_a_picture_that_cannot_be_written_is_an_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EverstepError, match="cannot be written"):
        plan_output(capsys, plot=tmp_path / "file" / "plan.svg")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"plot": Path("plan.png")}, "--plot plan.png does not end with .svg"),
        ({"deadline": "1h"}, "--deadline 1h cannot be met"),
        ({"deadline": "5m"}, "--deadline 5m cannot be met"),
        ({"deadline": "tomorrow"}, "--deadline 'tomorrow' is not a duration"),
        ({"deadline": "0h"}, "--deadline '0h' is not a duration"),
        ({"deadline": "91d"}, "up to 90 days"),
        ({"budget": 1.0}, "--budget 1 is below the cost of one hour"),
        ({"budget": float("nan")}, "--budget nan is below the cost of one hour"),
        ({"work": 0.0}, "--work 0 is outside"),
        ({"work": float("nan")}, "--work nan is outside"),
        ({"work": 1e6}, "too long to plan"),
        ({"images_per_second": 5.0}, "both set the work"),
        ({"speed": ["g5.xlarge"]}, "does not name a machine type"),
        ({"speed": ["p5.48xlarge=2"]}, "does not name a machine type of the pools (g5.xlarge"),
        ({"speed": ["g5.xlarge=0"]}, "has no factor between"),
        ({"speed": ["g5.xlarge=fast"]}, "has no factor between"),
        ({"trace": [Path("absent.json")]}, "absent.json cannot be read"),
        ({"stack": "local"}, "creates no GPU machines"),
        ({"stack": "absent"}, "absent"),
    ],
)
def test_wrong_input_is_refused_with_a_fix(
    capsys: pytest.CaptureFixture[str], options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(EverstepError) as error:
        plan_output(capsys, **options)

    assert expected in error.value.problem
    assert error.value.fix


def test_current_prices_of_the_cloud_replace_prices_of_the_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    types = ("g5.xlarge", "g6.xlarge", "g6e.xlarge", "g6.8xlarge")
    current_prices = {(name, "us-east-1a"): LivePrice(spot=5.0) for name in types}
    current_prices["g5.xlarge", "us-east-1b"] = LivePrice(spot=7.0)
    monkeypatch.setattr(
        command, "live_prices", lambda _config: LivePrices("a test", "us-east-1", current_prices)
    )

    report = json.loads(plan_output(capsys, live=True, as_json=True))

    assert report["prices"]["spot"] == pytest.approx(7.0, abs=0.1), (
        "the highest spot price, with the price of its disk"
    )
    assert report["prices"]["spot_by_zone"][:2] == pytest.approx([5.0, 7.0], abs=0.1)
    assert "Current spot prices: a test." in report["assumptions"]
