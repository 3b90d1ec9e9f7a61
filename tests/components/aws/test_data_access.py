"""The identity of the data preparation on AWS: its pods, and the objects that it may read."""

from functools import cache

import pytest

from components.aws.data_access import read_statements
from components.interface import DATA_ACCOUNT
from tests.components.aws.eks_stack import declare_training, policy_statements, training_stack
from tests.components.recorder import Graph

ROLE = "eks-data-role-role"
ASSOCIATION = "eks-data-identity"


@cache
def bucket_stack() -> Graph:
    """Declare a stack whose data are in a bucket."""
    return declare_training(
        data={"dataset": "imagefolder", "source": "s3://my-photos/imagenet/2012"}
    )


def test_only_the_data_preparation_uses_the_role() -> None:
    association = bucket_stack()[ASSOCIATION].inputs

    assert association["namespace"] == "elastic-job"
    assert association["serviceAccount"] == DATA_ACCOUNT
    users = [
        kind
        for kind in ("Job", "ElasticJob")
        if DATA_ACCOUNT in str(bucket_stack().one(kind).inputs)
    ]
    assert users == ["Job"], "workers read the volume, not the bucket"


def test_the_role_may_list_and_read_its_prefix_and_nothing_else() -> None:
    listing, reading = policy_statements(bucket_stack()["eks-data-role-read"])

    assert listing["Action"] == ["s3:ListBucket"]
    assert listing["Resource"] == ["arn:aws:s3:::my-photos"]
    assert listing["Condition"] == {"StringLike": {"s3:prefix": "imagenet/2012/*"}}
    assert reading["Action"] == ["s3:GetObject"]
    assert reading["Resource"] == [
        "arn:aws:s3:::my-photos/imagenet/2012",
        "arn:aws:s3:::my-photos/imagenet/2012/*",
    ]


def test_a_whole_bucket_needs_no_condition() -> None:
    listing, reading = read_statements("my-photos", "")

    assert not listing.conditions
    assert reading.resources == ["arn:aws:s3:::my-photos/*"]


def test_the_identity_exists_before_the_first_pod_that_needs_it() -> None:
    assert {ASSOCIATION, ROLE, "eks-data-role-read"} <= bucket_stack().ancestors(
        "training-data-imagefolder"
    )


@pytest.mark.parametrize("kind", ["plain", "archive"])
def test_no_identity_is_created_where_no_bucket_is_read(kind: str) -> None:
    archive = {"data": {"dataset": "imagefolder", "source": "uploads/photos.tar"}}
    graph = training_stack() if kind == "plain" else declare_training(**archive)

    assert not [name for name in graph.resources if "eks-data" in name]
    assert graph.one("Job").inputs["spec"]["template"]["spec"]["serviceAccountName"] == "trainer"
