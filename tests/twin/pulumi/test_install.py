"""Where the plugins are put, and that official ones win."""

import subprocess

import pytest

from everstep.errors import EverstepError
from twin.pulumi import install_plugins


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch, tmp_path):
    """No official plugin on PATH or in the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("EVERSTEP_OFFICIAL_PLUGINS", raising=False)


@pytest.fixture
def pulumi(tmp_path):
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.touch(mode=0o755)
    return program


def official(folder, name):
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"\x7fELF official")
    (folder / name).chmod(0o755)
    return folder


def found(home):
    return sorted(str(each.relative_to(home)) for each in home.glob("plugins/*/pulumi-*"))


def test_the_stand_ins_are_put_where_the_engine_looks_and_start_there(tmp_path, pulumi):
    home = tmp_path / "home"
    environment = install_plugins(home, pulumi)
    install_plugins(home, pulumi)

    assert environment["PULUMI_HOME"] == str(home)
    assert found(home) == [
        "plugins/language-python-v3.259.0/pulumi-language-python",
        "plugins/resource-kubernetes-v4.34.2/pulumi-resource-kubernetes",
    ]
    for program in found(home):
        running = subprocess.Popen(
            [home / program, "127.0.0.1:1"], stdout=subprocess.PIPE, cwd=tmp_path
        )
        with running:
            assert int(running.stdout.readline()) > 0, "the first line is the port"
            running.send_signal(2)
            assert running.wait(10) == 0, "the engine ends a plugin by an interrupt"


def test_an_official_host_beside_the_engine_is_used(tmp_path, pulumi):
    (pulumi.parent / "pulumi-language-python").touch()

    install_plugins(tmp_path / "home", pulumi)
    assert found(tmp_path / "home") == [
        "plugins/resource-kubernetes-v4.34.2/pulumi-resource-kubernetes"
    ]


def test_an_official_provider_that_is_too_old_for_the_sdk_is_not_used(tmp_path, pulumi):
    official(
        tmp_path / "user" / ".pulumi" / "plugins" / "resource-kubernetes-v4.9.1",
        "pulumi-resource-kubernetes",
    )

    install_plugins(tmp_path / "home", pulumi)
    assert "plugins/resource-kubernetes-v4.34.2/pulumi-resource-kubernetes" in found(
        tmp_path / "home"
    )


def test_an_official_provider_of_the_users_own_is_used(tmp_path, pulumi):
    name = "pulumi-resource-kubernetes"
    install_plugins(tmp_path / "home", pulumi)
    theirs = official(
        tmp_path / "user" / ".pulumi" / "plugins" / "resource-kubernetes-v4.34.2", name
    )

    install_plugins(tmp_path / "home", pulumi)
    link = tmp_path / "home" / "plugins" / "resource-kubernetes-v4.34.2"
    assert link.resolve() == theirs


def test_asking_for_official_plugins_that_are_absent_says_where_they_belong(
    tmp_path, pulumi, monkeypatch
):
    monkeypatch.setenv("EVERSTEP_OFFICIAL_PLUGINS", "1")

    with pytest.raises(EverstepError, match="pulumi-language-python"):
        install_plugins(tmp_path / "home", pulumi)
    assert not list((tmp_path / "home" / "plugins").iterdir())
