"""Prerequisites of a cloud on this host, and the twin's replacements for its credential plugins."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from everstep.cli.engine import plugins
from everstep.cli.engine.credential_plugin import AKS_SERVER, credential, fault
from everstep.cli.engine.plugins import CLOUDS
from everstep.errors import EverstepError

EKS = ["eks", "get-token", "--cluster-name", "everstep", "--region", "us-east-1"]
AKS = ["get-token", "--login", "workloadidentity", "--server-id", AKS_SERVER]
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\ndef\n-----END PRIVATE KEY-----\n"


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Return the path of an administrator's kubeconfig, as the twin writes it."""
    user = {"client-certificate-data": encode(CERTIFICATE), "client-key-data": encode(KEY)}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"users": [{"name": "admin", "user": user}]}))
    return path


def test_a_credential_is_the_administrators_certificate_as_an_exec_credential(
    kubeconfig: Path,
) -> None:
    response = json.loads(credential(kubeconfig.read_text()))

    assert response["apiVersion"] == "client.authentication.k8s.io/v1beta1"
    assert response["status"] == {"clientCertificateData": CERTIFICATE, "clientKeyData": KEY}


@pytest.mark.parametrize(("program", "arguments"), [("aws", EKS), ("kubelogin", AKS)])
def test_commands_of_the_clouds_kubeconfigs_are_accepted(
    program: str, arguments: list[str]
) -> None:
    assert fault(program, arguments) is None
    with_equals_signs = re.sub("(--[a-z-]+) ", r"\1=", " ".join(arguments)).split()
    assert len(with_equals_signs) == len(arguments) - 2, "each program has two options"
    assert fault(program, with_equals_signs) is None


@pytest.mark.parametrize(
    ("program", "arguments", "expected"),
    [
        ("aws", ["s3", "ls"], "eks get-token"),
        ("aws", ["eks", "get-token"], "--cluster-name"),
        ("aws", ["eks", "get-token", "--cluster-name"], "--cluster-name"),
        ("kubelogin", ["get-token", "--login", "azurecli"], "--server-id"),
        ("kubelogin", ["get-token", "--login=msi", "--server-id=other"], AKS_SERVER),
        ("kubelogin", ["convert-kubeconfig"], "get-token"),
    ],
)
def test_commands_that_the_real_programs_refuse_or_the_replacement_lacks_are_refused(
    program: str, arguments: list[str], expected: str
) -> None:
    assert expected in (fault(program, arguments) or "")


def test_the_credential_plugin_returns_the_key_without_containing_it(
    tmp_path: Path, kubeconfig: Path
) -> None:
    program = tmp_path / "bin" / "aws"
    plugins._write_credential_plugin(program, kubeconfig)

    result = subprocess.run([program, *EKS], capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["status"]["clientKeyData"] == KEY
    assert "PRIVATE" not in program.read_text()


def test_the_credential_plugin_fails_before_the_cluster_exists(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "aws"
    plugins._write_credential_plugin(program, tmp_path / "nowhere")

    result = subprocess.run([program, *EKS], capture_output=True, text=True, check=False)

    assert result.returncode == 254
    assert "does not exist yet" in result.stderr


@pytest.fixture
def bare_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Remove cloud programs and credentials from the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for cloud in CLOUDS.values():
        for source in cloud.credentials:
            if not source.startswith("~"):
                monkeypatch.delenv(source, raising=False)
    return tmp_path


def test_all_missing_prerequisites_of_a_real_cloud_are_reported_together(
    bare_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "has_sdk", lambda cloud: False)

    with pytest.raises(EverstepError, match="prerequisites for AWS are missing") as error:
        plugins.real_clouds(["aws"])
    for part in ("Pulumi", "make aws", "AWS_PROFILE", "aws: not on PATH", "--twin"):
        assert part in error.value.fix


def test_with_all_prerequisites_the_users_pulumi_runs_with_the_users_backend(
    bare_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pulumi", "pulumi-language-python", "kubelogin"):
        program = bare_host / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("ARM_USE_OIDC", "true")

    program, variables = plugins.real_clouds(["azure-native"])

    assert str(program) == shutil.which("pulumi")
    assert variables.keys() == {"PATH"}, "home, backend and login belong to the user's Pulumi"
    assert variables["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)  # noqa: PTH120 - compares the unresolved path


def test_a_language_host_among_the_plugins_of_the_pulumi_home_is_enough(
    bare_host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulumi = bare_host / "bin" / "pulumi"
    pulumi.write_text("#!/bin/sh\n")
    pulumi.chmod(0o755)
    monkeypatch.setenv("PULUMI_HOME", str(bare_host / "home"))
    assert "pulumi-language-python" in plugins._missing_engine()[0]

    host = bare_host / "home/plugins/language-python-v3.259.0/pulumi-language-python"
    host.parent.mkdir(parents=True)
    host.touch()

    assert plugins._missing_engine() == []


def test_a_missing_sdk_is_reported_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "has_sdk", lambda cloud: False)

    with pytest.raises(EverstepError, match="pulumi_azure_native") as error:
        plugins.require_sdk("azure-native")
    assert "make azure" in error.value.fix
