"""The rules and alerts in promtool's unit tests, and deliberate mistakes that these tests must catch."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring.prometheus import RULES, promtool

HERE = Path(__file__).parent
CASES = ("rules_test.yaml", "budget_test.yaml")
OPERATIONS = HERE.parents[1] / "docs" / "operations.md"

MISTAKES = {
    "EverstepJobStalled": (
        ('elasticjob_condition{condition="Running"}) == 1', 'elasticjob_condition{condition="Run"}) == 1'),
        ("rate(everstep_worker_steps_total[5m])", "rate(everstep_worker_step_total[5m])"),
        ('{activity="evaluation"}', '{activity="evaluate"}'),
    ),
    "EverstepGoodputLow": (
        ("by (elasticjob) (rate(everstep_worker_seconds_total[10m]))", "(rate(everstep_worker_seconds[10m]))"),
        ('activity=~"data|compute|exchange"', 'activity=~"data|exchange"'),
    ),
    "EverstepCheckpointTooOld": (
        ("max by (elasticjob) (everstep_checkpoint_timestamp", "min by (elasticjob) (everstep_checkpoint_timestamp"),
        ("everstep_checkpoint_interval_seconds)", "everstep_checkpoint_period_seconds)"),
    ),
    "EverstepCheckpointFails": (
        ("everstep_checkpoint_failures_total[15m]", "everstep_checkpoint_failed_total[15m]"),
    ),
    "EverstepGpuIdle": (
        ("avg_over_time(DCGM_FI_DEV_GPU_UTIL[15m])", "avg_over_time(DCGM_FI_DEV_UTIL[15m])"),
        ("avg by (Hostname, gpu)", "avg by (Hostname)"),
    ),
    "EverstepCapacityStarved": (
        ("(elasticjob_min_replicas)", "(elasticjob_minimum_replicas)"),
    ),
    "EverstepCapacityReduced": (("(elasticjob_replicas)", "(elasticjob_desired)"),),
    "EverstepWorkersFail": (
        ('cause=~"failed|signalled"', 'cause=~"failed|disrupted"'),
        ('cause=~"failed|signalled"', 'reason=~"failed|signalled"'),
    ),
    "EverstepControllerFails": (
        ("elasticjob_reconcile_errors_total[10m]", "elasticjob_reconcile_error_total[10m]"),
        ("sum(elasticjob_leader) == 0", "sum(elasticjob_leads) == 0"),
        ("present_over_time(elasticjob_leader[1d])", "present_over_time(elasticjob_leads[1d])"),
    ),
    "EverstepGpuNodesNotCounted": (
        ("sum(elasticjob_running_workers) > 0", "sum(elasticjob_workers) > 0"),
        ("and on () everstep:gpu_node_usd_per_hour", "and on () everstep:gpu_usd_per_hour"),
        ("unless on () everstep:gpu_nodes:count", "unless on () everstep:fixed_usd_per_hour"),
    ),
    "EverstepBudgetForecast": (
        ("by (Hostname) (DCGM_FI_DEV_GPU_UTIL)", "by (node) (DCGM_FI_DEV_GPU_UTIL)"),
        ("sum * 730 > everstep:budget_usd_per_month", "sum * 730 > everstep:budget_usd"),
    ),
    "EverstepBudgetNearlySpent": (
        ("> 0.8 * everstep:budget_usd_per_month", "> 0.8 * everstep:budget"),
        ("sum[30d:1h]", "sum[30d:2h]"),
    ),
    "EverstepJobBudgetNearlySpent": (
        ("0.8 * max by (elasticjob) (elasticjob_budget_usd)", "0.8 * max by (elasticjob) (elasticjob_limit_usd)"),
        ("max by (elasticjob) (elasticjob_spent_usd)", "max by (job) (elasticjob_spent_usd)"),
    ),
    "EverstepCertificateExpires": (
        ("(kubelet_certificate_manager_server_ttl_seconds)", "(kubelet_server_ttl_seconds)"),
        ("min by (instance) (kubelet_certificate_manager_client", "min by (node) (kubelet_certificate_manager_client"),
    ),
    "EverstepEtcdCertificateExpires": (
        ("etcd_certificate_expiry_timestamp_seconds) - time()", "etcd_certificate_timestamp_seconds) - time()"),
        ("< 30 * 86400", "< 3 * 86400"),
        ("min by (elasticjob) (everstep_etcd", "min by (instance) (everstep_etcd"),
    ),
}  # fmt: skip
"""Alert -> strings of the rules that occur once, with a replacement that breaks the alert, such as a wrong metric."""


def alerts() -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return {rule["alert"]: rule for rule in rules if "alert" in rule}


def needed_rules(rules: str, cases: str) -> str:
    """Return the alerts that cases mention and the rules that these use: promtool evaluates all at each step."""
    content, expressions = yaml.safe_load(rules), ""
    for group in reversed(content["groups"]):
        needed = list[dict[str, Any]]()
        for rule in reversed(group["rules"]):  # a rule uses only those above it
            if rule["alert"] in cases if "alert" in rule else rule["record"] in expressions + cases:
                needed.insert(0, rule)
                expressions += rule["expr"]
        group["rules"] = needed
    return yaml.safe_dump(content)


def failures(folder: Path, rules: str, alert: str = "") -> str:
    """Run promtool's tests of the rules and return its output; empty if all pass.

    Args:
        folder: folder for copies of the files.
        rules: the rules.
        alert: name of the alert whose cases are run; empty: all cases, with all rules.
    """
    files = {}
    for name in CASES:
        cases = yaml.safe_load((HERE / name).read_text())
        cases["tests"] = [case for case in cases["tests"] if alert in str(case)]
        if cases["tests"]:
            files[name] = yaml.safe_dump(cases)
            (folder / name).write_text(files[name])
    content = needed_rules(rules, "".join(files.values())) if alert else rules
    (folder / "rules.yaml").write_text(content)
    result = promtool("test", "rules", *files, folder=folder)
    return result.stdout + result.stderr if result.returncode else ""


@pytest.mark.twin
def test_promtool_accepts_the_rules() -> None:
    result = promtool("check", "rules", "--lint-fatal", RULES, folder=HERE)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.twin
def test_every_alert_fires_when_it_must_and_only_then(tmp_path: Path) -> None:
    assert not failures(tmp_path, RULES.read_text())


def test_every_alert_has_a_deliberate_mistake() -> None:
    assert set(MISTAKES) == set(alerts())


@pytest.mark.twin
@pytest.mark.parametrize(
    ("alert", "old", "new"), [(name, *pair) for name, pairs in MISTAKES.items() for pair in pairs]
)
def test_a_deliberate_mistake_is_caught(tmp_path: Path, alert: str, old: str, new: str) -> None:
    rules = RULES.read_text()
    assert rules.count(old) == 1, f"update the mistake of {alert}"

    messages = failures(tmp_path, rules.replace(old, new), alert)

    assert alert in messages, "the alert would stay silent in the incident that it is for"


@pytest.mark.parametrize("name", list(alerts()))
def test_every_alert_has_a_summary_and_a_section_in_the_runbook(name: str) -> None:
    alert = alerts()[name]
    annotations = alert["annotations"]
    page, _, section = annotations["runbook_url"].rpartition("#")

    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert annotations["summary"].endswith(".")
    assert annotations["description"].endswith(".")
    assert page.endswith("docs/operations.md")
    assert section in sections(OPERATIONS.read_text())


def sections(page: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = (line.lstrip("#").strip() for line in page.splitlines() if line.startswith("#"))
    return {
        "".join(c for c in heading.lower() if c.isalnum() or c in " -").replace(" ", "-")
        for heading in headings
    }
