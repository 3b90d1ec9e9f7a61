"""Installation of the twin's provider for a cloud, where the engine looks for plugins."""

from pathlib import Path

from cloudtwin.errors import TwinError
from cloudtwin.providers.schema.store import SDKS, sdk_version
from cloudtwin.pulumi.launcher import write_launcher

CLOUDS = tuple(SDKS)


def install(home: Path, cloud: str) -> None:
    """Install the provider of a cloud as a plugin.

    An official plugin of the same version in the same home is replaced: a program that runs on the
    twin must not reach a real account.

    Args:
        home: the PULUMI_HOME of the engine; created if absent.
        cloud: aws or azure-native.

    Raises:
        TwinError: there is no such cloud, or its SDK is not installed.
    """
    if cloud not in CLOUDS:
        raise TwinError(f"The twin has no cloud {cloud!r}.", f"It has: {', '.join(CLOUDS)}.")
    folder = home / "plugins" / f"resource-{cloud}-v{sdk_version(cloud)}"
    if folder.is_symlink():
        folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    write_launcher(folder / f"pulumi-resource-{cloud}", f"cloudtwin.providers {cloud}")
