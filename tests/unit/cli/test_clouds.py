"""What a cloud needs on this machine, and the programs that stand in for its own."""

import base64
import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from everstep.cli import clouds
from everstep.cli.clouds import CLOUDS
from everstep.cli.token_program import AKS_SERVER, credential, fault
from everstep.errors import EverstepError

EKS = ["eks", "get-token", "--cluster-name", "everstep", "--region", "us-east-1"]
AKS = ["get-token", "--login", "workloadidentity", "--server-id", AKS_SERVER]
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\ndef\n-----END PRIVATE KEY-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
def kubeconfig(tmp_path):
    """An administrator's kubeconfig as the twin writes it."""
    user = {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY)}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump({"users": [{"name": "admin", "user": user}]}))
    return path


def test_a_credential_is_the_administrators_certificate_in_the_form_clients_ask_for(kubeconfig):
    said = json.loads(credential(kubeconfig.read_text()))

    assert said["apiVersion"] == "client.authentication.k8s.io/v1beta1"
    assert said["status"] == {"clientCertificateData": CERTIFICATE, "clientKeyData": KEY}


@pytest.mark.parametrize(("program", "arguments"), [("aws", EKS), ("kubelogin", AKS)])
def test_what_the_clouds_kubeconfigs_ask_is_answered(program, arguments):
    assert fault(program, arguments) is None
    assert fault(program, [word.replace(" ", "=") for word in arguments]) is None


@pytest.mark.parametrize(
    ("program", "arguments", "said"),
    [
        ("aws", ["s3", "ls"], "eks get-token"),
        ("aws", ["eks", "get-token"], "--cluster-name"),
        ("aws", ["eks", "get-token", "--cluster-name"], "--cluster-name"),
        ("kubelogin", ["get-token", "--login", "azurecli"], "--server-id"),
        ("kubelogin", ["get-token", "--login=msi", "--server-id=other"], AKS_SERVER),
        ("kubelogin", ["convert-kubeconfig"], "get-token"),
    ],
)
def test_what_the_real_programs_would_refuse_is_refused(program, arguments, said):
    assert said in (fault(program, arguments) or "")


def test_the_stand_in_runs_as_a_program_of_its_own_without_being_told_secrets(tmp_path, kubeconfig):
    program = tmp_path / "bin" / "aws"
    clouds._write_token_program(program, kubeconfig)

    done = subprocess.run([program, *EKS], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"]["clientKeyData"] == KEY
    assert "PRIVATE" not in program.read_text()


def test_before_the_twins_cluster_stands_the_stand_in_says_so(tmp_path):
    program = tmp_path / "bin" / "aws"
    clouds._write_token_program(program, tmp_path / "nowhere")

    done = subprocess.run([program, *EKS], capture_output=True, text=True, check=False)

    assert done.returncode == 254
    assert "does not stand yet" in done.stderr


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """A machine without anything of a cloud."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    for cloud in CLOUDS.values():
        for place in cloud.credentials:
            if not place.startswith("~"):
                monkeypatch.delenv(place, raising=False)
    return tmp_path


def test_everything_that_a_real_cloud_lacks_here_is_named_at_once(bare, monkeypatch):
    monkeypatch.setattr(clouds, "has_sdk", lambda cloud: False)

    with pytest.raises(EverstepError, match="AWS cannot be reached") as caught:
        clouds.real(["aws"])
    for word in ("Pulumi", "make aws", "AWS_PROFILE", "aws: not on PATH", "--twin"):
        assert word in caught.value.remedy


def test_with_everything_there_the_users_own_pulumi_is_run_with_the_users_own_state(
    bare, monkeypatch
):
    for name in ("pulumi", "pulumi-language-python", "kubelogin"):
        program = bare / "bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("ARM_USE_OIDC", "true")
    monkeypatch.setenv("PULUMI_BACKEND_URL", "azblob://state")

    program, variables = clouds.real(["azure-native"])

    assert str(program) == shutil.which("pulumi")
    assert variables["PULUMI_BACKEND_URL"] == "azblob://state"
    assert variables["PULUMI_HOME"] == str(bare / ".pulumi")
    assert variables["PATH"].split(os.pathsep)[0] == os.path.dirname(sys.executable)  # noqa: PTH120  as found


def test_a_missing_sdk_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setattr(clouds, "has_sdk", lambda cloud: False)

    with pytest.raises(EverstepError, match="pulumi_azure_native") as caught:
        clouds.require_sdk("azure-native")
    assert "make azure" in caught.value.remedy
