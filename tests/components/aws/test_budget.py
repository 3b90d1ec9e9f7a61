"""The budget on AWS."""

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
