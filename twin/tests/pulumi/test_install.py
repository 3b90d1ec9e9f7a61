"""Installation of the plugins, and the precedence of official ones."""

import signal
import subprocess
from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.pulumi import install_plugins
from cloudtwin.toolchain.binaries import PROGRAMS

PROVIDER = "pulumi-resource-kubernetes"
STAND_IN = f"plugins/resource-kubernetes-v4.34.2/{PROVIDER}"


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide official plugins on PATH and in the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("CLOUDTWIN_OFFICIAL_PLUGINS", raising=False)


@pytest.fixture
def pulumi(tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.touch(mode=0o755)
    return program


def write_official_plugin(folder: Path, name: str = PROVIDER) -> Path:
    """Write the folder of an official plugin: its program and the metadata file that the engine writes."""
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"\x7fELF official")
    (folder / name).chmod(0o755)
    (folder / "PulumiPlugin.yaml").write_text("runtime: go\n")
    return folder


def users_plugins(tmp_path: Path) -> Path:
    return tmp_path / "user" / ".pulumi" / "plugins"


def installed_programs(home: Path) -> list[str]:
    return sorted(str(path.relative_to(home)) for path in home.glob("plugins/*/pulumi-*"))


def test_installed_stand_ins_print_their_port_and_end_at_an_interrupt(
    tmp_path: Path, pulumi: Path
) -> None:
    home = tmp_path / "home"
    environment = install_plugins(home, pulumi)
    install_plugins(home, pulumi)

    assert environment["PULUMI_HOME"] == str(home)
    assert installed_programs(home) == [
        f"plugins/language-python-v{PROGRAMS['pulumi'].version}/pulumi-language-python",
        STAND_IN,
    ]
    for program in installed_programs(home):
        process = subprocess.Popen(
            [home / program, "127.0.0.1:1"], stdout=subprocess.PIPE, cwd=tmp_path
        )
        with process:
            try:
                assert process.stdout is not None
                assert int(process.stdout.readline()) > 0, "the first line is the port"
                process.send_signal(signal.SIGINT)
                assert process.wait(100) == 0, "the engine ends a plugin with an interrupt"
            finally:
                process.kill()


def test_an_official_host_next_to_the_engine_is_used(tmp_path: Path, pulumi: Path) -> None:
    (pulumi.parent / "pulumi-language-python").touch()

    install_plugins(tmp_path / "home", pulumi)
    assert installed_programs(tmp_path / "home") == [STAND_IN]


def test_an_official_provider_that_is_too_old_for_the_sdk_is_not_used(
    tmp_path: Path, pulumi: Path
) -> None:
    write_official_plugin(users_plugins(tmp_path) / "resource-kubernetes-v4.9.1")

    install_plugins(tmp_path / "home", pulumi)
    assert STAND_IN in installed_programs(tmp_path / "home")


@pytest.mark.parametrize("version", ["4.34.2", "4.35.0"])
def test_an_official_provider_in_the_users_home_replaces_the_stand_in(
    tmp_path: Path, pulumi: Path, version: str
) -> None:
    home = tmp_path / "home"
    install_plugins(home, pulumi)
    official_folder = write_official_plugin(
        users_plugins(tmp_path) / f"resource-kubernetes-v{version}"
    )

    install_plugins(home, pulumi)
    install_plugins(home, pulumi)

    folder = home / "plugins" / official_folder.name
    assert not folder.is_symlink(), "the engine skips plugin folders that are symbolic links"
    assert {path.name: path.resolve() for path in folder.iterdir()} == {
        path.name: path for path in official_folder.iterdir()
    }
    assert [name for name in installed_programs(home) if PROVIDER in name] == [
        f"plugins/{official_folder.name}/{PROVIDER}"
    ], "the engine might start a stand-in that was left behind"


def test_the_stand_in_returns_when_the_official_provider_is_removed(
    tmp_path: Path, pulumi: Path
) -> None:
    home = tmp_path / "home"
    official_folder = write_official_plugin(users_plugins(tmp_path) / "resource-kubernetes-v4.34.2")
    install_plugins(home, pulumi)
    for file in official_folder.iterdir():
        file.unlink()
    official_folder.rmdir()

    install_plugins(home, pulumi)
    assert "-m cloudtwin.providers kubernetes" in (home / STAND_IN).read_text()


def test_a_plugin_folder_that_an_older_version_linked_becomes_a_real_folder(
    tmp_path: Path, pulumi: Path
) -> None:
    home = tmp_path / "home"
    official_folder = write_official_plugin(users_plugins(tmp_path) / "resource-kubernetes-v4.34.2")
    (home / "plugins").mkdir(parents=True)
    (home / "plugins" / official_folder.name).symlink_to(official_folder, target_is_directory=True)

    install_plugins(home, pulumi)
    assert not (home / "plugins" / official_folder.name).is_symlink()
    assert (home / STAND_IN).resolve() == official_folder / PROVIDER


def test_requiring_absent_official_plugins_names_the_first_missing_one(
    tmp_path: Path, pulumi: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTWIN_OFFICIAL_PLUGINS", "1")

    with pytest.raises(TwinError, match="pulumi-language-python"):
        install_plugins(tmp_path / "home", pulumi)
    assert not list((tmp_path / "home" / "plugins").iterdir())
