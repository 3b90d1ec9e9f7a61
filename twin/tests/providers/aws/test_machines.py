"""User data of launch templates."""

import pytest
from cloudtwin.providers.aws.machines import TEMPLATE
from cloudtwin.providers.protocol.values import Secret

from twin.tests.providers.aws.cases import encoded
from twin.tests.providers.offline import Provider


@pytest.mark.parametrize("text", ["#!/bin/sh", "aGVsbG8", "name: test", "hällo"])
def test_user_data_that_are_not_base64_are_refused_without_their_text(
    provider: Provider, text: str
) -> None:
    _, failures = provider.check_inputs(TEMPLATE, "t", userData=Secret(text))

    (failure,) = failures
    assert "is not valid base64" in failure
    assert text not in failure, "user data may contain a password"


def test_user_data_may_have_line_breaks_in_their_encoding(provider: Provider) -> None:
    text = encoded("#!/bin/sh\n" * 10)

    _, failures = provider.check_inputs(TEMPLATE, "t", userData=f"{text[:76]}\n{text[76:]}\n")

    assert failures == []
