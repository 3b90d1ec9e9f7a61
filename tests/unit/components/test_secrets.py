"""Secrets: found in clear wherever they stand, never repeated, and given to workers another way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.config import from_mapping, secrets
from components.faults import ConfigurationError, Fault
from tests.unit.components.declared import declared, pod_of

SHAPES = {
    "access key of AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "private key": "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNz",
    "token of GitHub": "ghp_" + "a1B2" * 9,
    "token of Hugging Face": "hf_" + "aBcD" * 8,
    "token of Slack": "xoxb-" + "123456789012-abcdef",
    "token of Pulumi": "pul-" + "0123456789abcdef" * 2 + "01234567",
    "API key": "sk-" + "proj-abcdefghijklmnop",
    "signed token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0.x",
    "key of an Azure account": "AccountName=a;" + "AccountKey=Zm9v",
    "address with a password": "redis://me:" + "hunter2@cache:6379",
}


@pytest.mark.parametrize(("what", "secret"), SHAPES.items(), ids=SHAPES)
def test_a_secret_is_known_by_its_shape_wherever_it_stands(what: str, secret: str) -> None:
    (fault,) = secrets.in_clear({"tags": {"a": "b"}, "deep": [{"down": f"x {secret}"}]})

    assert (fault.path, what in fault.rule) == ("deep[0].down", True)
    assert secret not in str(fault)


@pytest.mark.parametrize(
    "name",
    ["DB_PASSWORD", "hfToken", "AWS_SECRET_ACCESS_KEY", "API_KEY", "AZURE_CREDENTIALS", "passwd"],
)
def test_a_secret_is_known_by_its_name(name: str) -> None:
    (fault,) = secrets.in_clear({"env": {name: "hunter2"}})

    assert fault.path == f"env.{name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("TOKENIZERS_PARALLELISM", "many"),
        ("MAX_TOKENS", "512"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/token"),
        ("SECRET_NAME", "training"),
        ("USE_TOKEN", "true"),
        ("WANDB_API_KEY", ""),
        ("WANDB_API_KEY", "$(FROM_ELSEWHERE)"),
        ("MONKEY", "business"),
        ("KEYBOARD", "qwerty"),
    ],
)
def test_what_only_sounds_like_a_secret_is_let_through(name: str, value: str) -> None:
    assert secrets.in_clear({"env": {name: value}}) == []


@given(st.dictionaries(st.sampled_from("abc"), st.text(alphabet="abc 123./-", max_size=40)))
def test_plain_words_are_no_secrets(env: dict[str, str]) -> None:
    assert secrets.in_clear({"job": {"env": env}}) == []


def test_another_fault_of_the_same_value_does_not_show_it_either() -> None:
    secret = SHAPES["token of GitHub"]

    with pytest.raises(ConfigurationError) as caught:
        from_mapping({"job": {"epochs": secret, "image": f"{secret} {secret}"}})

    assert len(caught.value.faults) == 4, "each is a wrong value, and each is a secret"
    assert secret not in str(caught.value)


def test_a_fault_without_a_secret_keeps_its_value() -> None:
    fault = Fault("job.replicas", 4, "is more than maxReplicas (3)")

    assert secrets.hide(fault, frozenset()) == fault


def test_workers_take_the_keys_of_named_secrets_as_their_environment() -> None:
    job = {"name": "fashion", "envFromSecrets": ["wandb", "registry"]}

    (container,) = pod_of(declared(job=job)["training-job-fashion"])["containers"]

    assert container["envFrom"] == [
        {"secretRef": {"name": "wandb"}},
        {"secretRef": {"name": "registry"}},
    ]


def test_workers_without_secrets_say_nothing_of_them() -> None:
    (container,) = pod_of(declared()["training-job-training"])["containers"]

    assert not container.get("envFrom")
