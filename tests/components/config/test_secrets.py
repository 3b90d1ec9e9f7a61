"""Plaintext secrets: detected anywhere, never shown, and passed to workers as Secrets instead."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.config import from_mapping, secrets
from components.config.faults import ConfigFault, ConfigurationError
from tests.components.existing.existing_stack import declare_existing, pod_of

SECRETS = {
    "AWS access key": "AKIA" + "IOSFODNN7EXAMPLE",
    "private key": "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNz",
    "GitHub token": "ghp_" + "a1B2" * 9,
    "Hugging Face token": "hf_" + "aBcD" * 8,
    "Slack token": "xoxb-" + "123456789012-abcdef",
    "Pulumi token": "pul-" + "0123456789abcdef" * 2 + "01234567",
    "API key": "sk-" + "proj-abcdefghijklmnop",
    "signed token": "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxIn0.x",
    "Azure account key": "AccountName=a;" + "AccountKey=Zm9v",
    "URL with a password": "redis://me:" + "hunter2@cache:6379",
}


@pytest.mark.parametrize(("kind", "secret"), SECRETS.items(), ids=SECRETS)
def test_a_secret_is_recognized_by_its_format_in_any_key(kind: str, secret: str) -> None:
    (fault,) = secrets.plaintext_secrets({"tags": {"a": "b"}, "deep": [{"down": f"x {secret}"}]})

    assert fault.path == "deep[0].down"
    assert kind in fault.rule
    assert secret not in str(fault)


@pytest.mark.parametrize(
    "name",
    ["DB_PASSWORD", "hfToken", "AWS_SECRET_ACCESS_KEY", "API_KEY", "AZURE_CREDENTIALS", "passwd"],
)
def test_a_secret_is_recognized_by_its_key(name: str) -> None:
    (fault,) = secrets.plaintext_secrets({"env": {name: "hunter2"}})

    assert fault.path == f"env.{name}"
    assert "hunter2" not in str(fault)


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
def test_names_that_resemble_secrets_are_accepted(name: str, value: str) -> None:
    assert secrets.plaintext_secrets({"env": {name: value}}) == []


@pytest.mark.parametrize(
    "arguments",
    [["--hf-token", "hunter2"], ["--api-key=hunter2"], ["-v", "--db_password", "hunter2", "-x"]],
)
def test_a_secret_is_recognized_by_the_option_before_it(arguments: list[str]) -> None:
    (fault,) = secrets.plaintext_secrets({"job": {"args": arguments}})

    assert "job.args[" in fault.path
    assert "hunter2" not in str(fault)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--token-file", "/run/secrets/token"],
        ["--max-tokens", "512"],
        ["--password=$(DB_PASSWORD)"],
        ["--use-token", "--epochs", "3"],
        ["--token", "--epochs", "3"],
    ],
)
def test_options_that_resemble_secrets_are_accepted(arguments: list[str]) -> None:
    assert secrets.plaintext_secrets({"job": {"args": arguments}}) == []


def test_a_fault_of_a_command_does_not_show_the_secret_in_it() -> None:
    with pytest.raises(ConfigurationError) as error:
        from_mapping({"job": {"command": ["torchrun", "train.py", "--hf-token", "hunter2"]}})

    assert {fault.path for fault in error.value.faults} == {"job.command", "job.command[3]"}
    assert "hunter2" not in str(error.value)


@given(st.dictionaries(st.sampled_from("abc"), st.text(alphabet="abc 123./-", max_size=40)))
def test_plain_words_are_not_secrets(env: dict[str, str]) -> None:
    assert secrets.plaintext_secrets({"job": {"env": env}}) == []


def test_other_faults_of_a_secret_value_hide_it_too() -> None:
    secret = SECRETS["GitHub token"]

    with pytest.raises(ConfigurationError) as error:
        from_mapping({"job": {"epochs": secret, "image": f"{secret} {secret}"}})

    assert len(error.value.faults) == 4, "each is a wrong value, and each is a secret"
    assert secret not in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        {"job": {"envFromSecrets": SECRETS["Hugging Face token"]}},
        {
            "tags": {"owner": "vision", "costCenter": "4711", "environment": "dev"},
            "cluster": {
                "kind": "eks",
                "network": {"proxy": {"http": "https://ada:hunter2@proxy:3128"}},
            },
        },
    ],
    ids=["a list", "a proxy"],
)
def test_the_fix_of_a_fault_does_not_show_the_secret(data: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        from_mapping(data)

    assert not re.search("hunter2|aBcD", str(error.value)), "the fix repeats the value"


def test_a_fault_without_a_secret_keeps_its_value() -> None:
    fault = ConfigFault("job.replicas", 4, "is more than maxReplicas (3)")

    assert secrets.hide(fault, frozenset()) == fault


def test_listed_secrets_become_environment_variables_of_workers() -> None:
    job = {"name": "fashion", "envFromSecrets": ["wandb", "registry"]}

    (container,) = pod_of(declare_existing(job=job)["training-job-fashion"])["containers"]

    assert container["envFrom"] == [
        {"secretRef": {"name": "wandb"}},
        {"secretRef": {"name": "registry"}},
    ]


def test_workers_without_secrets_have_no_env_from() -> None:
    (container,) = pod_of(declare_existing()["training-job-training"])["containers"]

    assert not container.get("envFrom")
