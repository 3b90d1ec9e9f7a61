"""Every mistake in the table is named by its key and comes with a cure, and nothing else is."""

import contextlib
import copy
from typing import Any

import pytest
from pydantic import ValidationError

from components.config import from_mapping
from components.config.defaults import with_defaults
from components.config.stack import RULES, StackConfig
from components.faults import ConfigurationError, Fault
from components.rules import Rule, broken
from tests.unit.components.bad_stacks import AKS, CASES, EDGES, EKS, LOCAL, Case


def changed(base: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    data = copy.deepcopy(base)
    for path, value in change.items():
        *sections, key = path.split(".")
        inside = data
        for section in sections:
            inside = inside.setdefault(section, {})
        if value is None:
            del inside[key]
        else:
            inside[key] = value
    return data


def faults_of(case: Case) -> tuple[Fault, ...]:
    with pytest.raises(ConfigurationError) as caught:
        from_mapping(changed(case.base, case.change))
    return caught.value.faults


@pytest.mark.parametrize("base", [EKS, AKS, LOCAL], ids=["eks", "aks", "existing"])
def test_what_the_table_starts_from_is_right(base: dict[str, Any]) -> None:
    from_mapping(base)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_mistake_is_named_by_its_key_with_its_cure_and_no_other_is(case: Case) -> None:
    faults = faults_of(case)

    assert [fault.path for fault in faults] == [case.path], "one mistake, one message"
    for part in case.says:
        assert part in str(faults[0]), "the message must lead from the fault to its cure"


@pytest.mark.parametrize(("base", "change"), EDGES)
def test_what_only_just_passes_is_let_through(base: dict[str, Any], change: dict[str, Any]) -> None:
    from_mapping(changed(base, change))


def test_the_table_holds_at_least_sixty_mistakes_and_none_twice() -> None:
    assert len(CASES) >= 60
    assert len({(case.name, case.path) for case in CASES}) == len(CASES)


def breaks(rule: Rule, case: Case) -> bool:
    data = with_defaults(changed(case.base, case.change))
    with contextlib.suppress(ValidationError):
        StackConfig.model_validate(data)
        return bool(broken([rule], data, StackConfig, already_faulty=()))
    return False  # a field's own check says it all


def test_every_rule_across_fields_is_broken_by_some_mistake() -> None:
    unbroken = [rule for rule in RULES if not any(breaks(rule, case) for case in CASES)]

    assert [rule.paths for rule in unbroken] == [], "a rule that nothing breaks is untested"


@pytest.mark.parametrize("case", [case for case in CASES if "Secret" in "".join(case.says)])
def test_a_secret_is_not_repeated(case: Case) -> None:
    (value,) = case.change.values()
    secret = next(iter(value.values())) if isinstance(value, dict) else value

    assert secret not in "".join(map(str, faults_of(case)))
