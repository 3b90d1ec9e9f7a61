"""Every mistake in the table is reported with its key and a fix, and valid stacks are accepted."""

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


def test_no_mistake_is_in_the_table_twice() -> None:
    assert len({(case.name, case.path) for case in CASES}) == len(CASES)


def has_valid_fields(data: dict[str, Any]) -> bool:
    """Return whether the validators of the individual fields accept a stack."""
    try:
        StackConfig.model_validate(data)
    except ValidationError:
        return False
    return True


def test_every_cross_field_rule_is_violated_by_a_mistake_in_the_table() -> None:
    stacks = [with_defaults(with_changes(case.base, case.change)) for case in CASES]
    stacks_with_valid_fields = [stack for stack in stacks if has_valid_fields(stack)]

    def is_violated(rule: ConfigRule) -> bool:
        return any(violations([rule], stack, StackConfig, ()) for stack in stacks_with_valid_fields)

    assert [rule.paths for rule in RULES if not is_violated(rule)] == [], (
        "a rule without a violation is untested"
    )
