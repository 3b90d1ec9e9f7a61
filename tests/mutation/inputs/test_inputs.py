"""A sample of the wrong inputs of one stack for each cloud; `python -m tests.mutation.inputs` sends all of them."""

import random

import pytest

from tests.mutation.inputs.declared import declare_resources
from tests.mutation.inputs.run import (
    MAX_ACCEPTED_SHARE,
    SEED,
    Tally,
    judge_all,
    name_of,
    total,
    variants,
)
from tests.mutation.inputs.verdict import judge

SAMPLE = 120
STACKS = {"aws": "eks-prod", "azure-native": "aks-prod"}


@pytest.fixture(scope="module", params=STACKS)
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tally:
    """Return the counts for sampled wrong inputs of one cloud."""
    folder = tmp_path_factory.mktemp("accounts")
    resources = list(declare_resources(request.param, folder, (STACKS[request.param],)))
    sample_variants = random.Random(SEED).sample(variants(resources), SAMPLE)
    with judge() as twin_judge:
        return total(judge_all(sample_variants, twin_judge))


def test_the_twin_accepts_at_most_two_percent_of_the_inputs_that_the_service_refuses(
    sample: Tally,
) -> None:
    accepted_inputs = [
        f"{name_of(accepted.variant)}: {accepted.reason}" for accepted in sample.accepted_variants
    ]

    assert sample.count > SAMPLE / 3, "an oracle that refuses little proves little"
    assert len(accepted_inputs) <= MAX_ACCEPTED_SHARE * sample.count, accepted_inputs


def test_every_refusal_is_a_message_without_a_traceback(sample: Tally) -> None:
    failures = [f"{name_of(variant)}\n{trace}" for variant, trace in sample.failures]

    assert not failures, "\n".join(failures)
