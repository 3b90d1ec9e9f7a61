"""Every mistake in the table is reported with its key and a fix, and valid stacks are accepted."""

import contextlib
from typing import Any

import pytest
from pydantic import ValidationError

from components.config import from_mapping
from components.config.defaults import with_defaults
from components.config.faults import ConfigFault, ConfigurationError
from components.config.rules import ConfigRule, violations
from components.config.stack import RULES, StackConfig
from tests.components.config.bad_stacks import (
    AKS,
    CASES,
    EDGES,
    EKS,
    LOCAL,
    ON_PLATFORM,
    Case,
    with_changes,
)


def faults_of(case: Case) -> tuple[ConfigFault, ...]:
    with pytest.raises(ConfigurationError) as error:
        from_mapping(with_changes(case.base, case.change))
    return error.value.faults


@pytest.mark.parametrize(
    "base", [EKS, AKS, LOCAL, ON_PLATFORM], ids=["eks", "aks", "existing", "on a platform"]
)
def test_the_base_stacks_are_valid(base: dict[str, Any]) -> None:
    from_mapping(base)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_mistake_is_reported_once_with_its_key_and_fix(case: Case) -> None:
    faults = faults_of(case)

    assert [fault.path for fault in faults] == [case.path], "one mistake, one message"
    for part in case.message:
        assert part in str(faults[0]), "the message must state the rule and the fix"


@pytest.mark.parametrize(("base", "change"), EDGES)
def test_values_at_the_limits_are_accepted(base: dict[str, Any], change: dict[str, Any]) -> None:
    from_mapping(with_changes(base, change))


def test_the_table_has_at_least_sixty_distinct_mistakes() -> None:
    assert len(CASES) >= 60
    assert len({(case.name, case.path) for case in CASES}) == len(CASES)


def breaks(rule: ConfigRule, case: Case) -> bool:
    data = with_defaults(with_changes(case.base, case.change))
    with contextlib.suppress(ValidationError):
        StackConfig.model_validate(data)
        return bool(violations([rule], data, StackConfig, already_faulty=()))
    return False  # reported by the validator of a field


def test_a_mistake_violates_every_rule_across_fields() -> None:
    rules_without_case = [rule for rule in RULES if not any(breaks(rule, case) for case in CASES)]

    assert [rule.paths for rule in rules_without_case] == [], (
        "a rule without a violation is untested"
    )


@pytest.mark.parametrize("case", [case for case in CASES if "Secret" in "".join(case.message)])
def test_messages_do_not_contain_the_secret(case: Case) -> None:
    (value,) = case.change.values()
    secret = next(iter(value.values())) if isinstance(value, dict) else value

    assert secret not in "".join(map(str, faults_of(case)))
