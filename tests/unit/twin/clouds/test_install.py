"""Where the providers of the twin's clouds are put, and what the banner promises."""

import pytest

from everstep.errors import EverstepError
from twin.clouds import BANNER, install
from twin.clouds.wire.store import sdk_version


@pytest.mark.parametrize("cloud", ["aws", "azure-native"])
def test_a_provider_is_put_where_the_engine_looks_for_the_sdks_version(tmp_path, cloud):
    install(tmp_path, cloud)
    install(tmp_path, cloud)

    folder = tmp_path / "plugins" / f"resource-{cloud}-v{sdk_version(cloud)}"
    program = folder / f"pulumi-resource-{cloud}"
    assert f"-P -m twin.clouds {cloud} " in program.read_text()
    assert program.stat().st_mode & 0o111
    assert [each.name for each in folder.iterdir()] == [program.name]


def test_a_real_plugin_in_the_twins_home_does_not_stay_there(tmp_path):
    """Who asks for the twin's cloud must not reach a real account."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "pulumi-resource-aws").write_bytes(b"\x7fELF")
    link = tmp_path / "home" / "plugins" / f"resource-aws-v{sdk_version('aws')}"
    link.parent.mkdir(parents=True)
    link.symlink_to(theirs, target_is_directory=True)

    install(tmp_path / "home", "aws")
    assert (theirs / "pulumi-resource-aws").read_bytes() == b"\x7fELF", "theirs is left alone"
    assert b"twin.clouds" in (link / "pulumi-resource-aws").read_bytes()


def test_a_cloud_that_the_twin_does_not_have_is_named(tmp_path):
    with pytest.raises(EverstepError, match="gcp"):
        install(tmp_path, "gcp")


def test_the_banner_says_both_what_is_proved_and_what_is_not():
    assert "It proves" in BANNER
    assert "It does not prove" in BANNER
