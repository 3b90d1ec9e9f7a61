"""Names on Azure: within the limits of the services, stable, and unique where required."""

import re
import uuid

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.azure.names import (
    account_name,
    assignment_name,
    budget_name,
    dns_prefix,
    group_name,
    node_group_name,
)
from components.azure.roles import BuiltInRole, definition_id, subscription_of

CLUSTERS = st.from_regex(r"[a-z]([-a-z0-9]{0,28}[a-z0-9])?", fullmatch=True)
STACKS = st.from_regex(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,99}", fullmatch=True)
GROUP = "/subscriptions/00000000-0000-4000-8000-000000000000/resourceGroups/"


@given(cluster=CLUSTERS, stack=STACKS)
@example(cluster="a", stack="dev.")
def test_names_fit_the_limits_of_their_services(cluster: str, stack: str) -> None:
    group = group_name(cluster, stack)

    assert re.fullmatch(r"[-\w.]{0,89}[-\w]", group)
    assert len(node_group_name(cluster, stack)) <= 80
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", budget_name(cluster, stack))
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,52}[a-z0-9])?", dns_prefix(cluster, stack))
    assert re.fullmatch(r"[a-z0-9]{3,24}", account_name(cluster, GROUP + group))


@given(cluster=CLUSTERS, first=STACKS, second=STACKS)
@example(cluster="a", first="b.c", second="b-c")
@example(cluster="a", first="b.", second="b")
def test_two_stacks_never_share_a_group_a_budget_or_an_account(
    cluster: str, first: str, second: str
) -> None:
    budgets = {budget_name(cluster, first), budget_name(cluster, second)}
    groups = {group_name(cluster, first), group_name(cluster, second)}
    accounts = {account_name(cluster, GROUP + group) for group in groups}

    assert len(groups) == len(budgets) == len({first, second})
    assert len(accounts) == len({group.lower() for group in groups})


def test_two_subscriptions_never_share_an_account() -> None:
    first, second = (
        f"/subscriptions/{subscription}/resourceGroups/everstep-dev" for subscription in ("a", "b")
    )

    assert account_name("everstep", first) != account_name("everstep", second), (
        "account names are globally unique: two users of the defaults would collide"
    )


def test_names_never_change() -> None:
    assert group_name("everstep", "aks-dev") == "everstep-aks-dev"
    assert account_name("everstep", f"{GROUP}everstep-aks-dev") == "everstep4bd7949e4e", (
        "a renamed account is a new account without the data of the old one"
    )
    assert assignment_name("/scope", BuiltInRole.ACR_PULL.value, "principal") == (
        "8c4fa91d-e6d4-5169-8246-2d03a7d18506"
    )


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=3, max_size=3))
def test_the_name_of_an_assignment_depends_only_on_its_immutable_fields(fields: list[str]) -> None:
    scope, role, principal = fields
    name = assignment_name(scope, role, principal)

    assert uuid.UUID(name).version == 5
    assert name == assignment_name(scope.upper(), role.upper(), principal.upper())
    assert name != assignment_name(scope, role, principal + "x")
    assert name != assignment_name(scope + "x", role, principal)
    assert name != assignment_name(scope, role + "x", principal)


def test_a_role_id_contains_the_subscription_of_the_scope() -> None:
    scope = f"{GROUP}g/providers/Microsoft.Storage/storageAccounts/a"

    assert subscription_of(scope) == "/subscriptions/00000000-0000-4000-8000-000000000000"
    assert definition_id(scope, BuiltInRole.ACR_PULL) == (
        "/subscriptions/00000000-0000-4000-8000-000000000000/providers/Microsoft.Authorization"
        "/roleDefinitions/7f951dda-4ed3-4680-a7ca-43fe172d538d"
    )


@pytest.mark.parametrize("scope", ["", "/", "everstep", "/providers/x", "/subscriptions/"])
def test_a_scope_outside_a_subscription_is_refused(scope: str) -> None:
    with pytest.raises(ValueError, match="not the id of a resource"):
        subscription_of(scope)
