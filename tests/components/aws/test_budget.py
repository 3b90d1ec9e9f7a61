"""The budget on AWS."""

from hypothesis import example, given
from hypothesis import strategies as st

from components.aws.budget import budget_name
from components.aws.fsx import bucket_prefix
from tests.components.aws.eks_stack import STACK, all_features_stack, plain_stack


def test_the_budget_counts_this_stack_and_warns_before_and_at_its_limit() -> None:
    inputs = all_features_stack().one("Budget").inputs

    assert (inputs["budgetType"], inputs["timeUnit"]) == ("COST", "MONTHLY")
    assert (inputs["limitAmount"], inputs["limitUnit"]) == ("500.00", "USD")
    assert inputs["costFilters"] == [{"name": "TagKeyValue", "values": [f"user:stack${STACK}"]}]
    assert {
        (notification["threshold"], notification["notificationType"])
        for notification in inputs["notifications"]
    } == {
        (80, "ACTUAL"),
        (100, "ACTUAL"),
        (100, "FORECASTED"),
    }
    for notification in inputs["notifications"]:
        assert notification["subscriberEmailAddresses"] == ["owner@example.org"]


def test_without_the_option_a_stack_has_no_budget() -> None:
    assert not plain_stack().of_type("Budget")


CLUSTERS = st.from_regex(r"[a-z]([-a-z0-9]{0,27}[a-z0-9])?", fullmatch=True)
STACKS = st.from_regex(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,99}", fullmatch=True)


@given(cluster=CLUSTERS, first=STACKS, second=STACKS)
@example(cluster="c" * 29, first="s" * 99 + "a", second="s" * 99 + "b")
def test_names_with_any_stack_name_fit_their_limits_and_budget_names_are_unique(
    cluster: str, first: str, second: str
) -> None:
    names = {budget_name(cluster, first), budget_name(cluster, second)}

    assert all(len(name) <= 100 for name in names)
    assert len(names) == len({first, second})
    assert len(bucket_prefix(cluster, first)) <= 37, "the provider appends 26 of 63 characters"


def test_the_name_of_a_budget_never_changes() -> None:
    assert budget_name("everstep", "eks-dev") == "everstep-eks-dev"
