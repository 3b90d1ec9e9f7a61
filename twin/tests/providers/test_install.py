"""Installation of the providers."""

from pathlib import Path

import pytest
from cloudtwin.errors import TwinError
from cloudtwin.providers import install
from cloudtwin.providers.schema.store import sdk_version


@pytest.mark.parametrize("cloud", ["aws", "azure-native"])
def test_a_provider_is_installed_under_the_version_of_the_sdk(tmp_path: Path, cloud: str) -> None:
    install(tmp_path, cloud)
    install(tmp_path, cloud)

    folder = tmp_path / "plugins" / f"resource-{cloud}-v{sdk_version(cloud)}"
    program = folder / f"pulumi-resource-{cloud}"
    assert f"-P -m cloudtwin.providers {cloud} " in program.read_text()
    assert program.stat().st_mode & 0o111
    assert [path.name for path in folder.iterdir()] == [program.name]


def test_an_official_plugin_in_the_twins_home_is_replaced(tmp_path: Path) -> None:
    # A user of the twin's cloud must not reach a real account.
    official_folder = tmp_path / "theirs"
    official_folder.mkdir()
    (official_folder / "pulumi-resource-aws").write_bytes(b"\x7fELF")
    link = tmp_path / "home" / "plugins" / f"resource-aws-v{sdk_version('aws')}"
    link.parent.mkdir(parents=True)
    link.symlink_to(official_folder, target_is_directory=True)

    install(tmp_path / "home", "aws")
    assert (official_folder / "pulumi-resource-aws").read_bytes() == b"\x7fELF", (
        "the official plugin must not change"
    )
    assert b"cloudtwin.providers" in (link / "pulumi-resource-aws").read_bytes()


def test_an_unknown_cloud_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TwinError, match=r"'gcp'"):
        install(tmp_path, "gcp")
