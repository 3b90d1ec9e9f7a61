"""Where data come from, as a user writes it: a folder or a tar archive."""

from pathlib import Path

from everstep.errors import EverstepError
from everstep.staging.content import Source
from everstep.staging.sources.folder import FolderSource
from everstep.staging.sources.tar import SUFFIX, TarSource

FORMS = "a folder or a .tar archive"


def open_source(location: str) -> Source:
    """Return the source at a location.

    Args:
        location: one of FORMS.

    Raises:
        EverstepError: the location is invalid, or there is nothing.
    """
    if "://" in location:
        raise EverstepError(f"the source {location!r} is not supported", f"Use {FORMS}.")
    path = Path(location).expanduser()
    if path.is_dir():
        return FolderSource(path.absolute())
    if not path.exists():
        raise EverstepError(f"the source {location!r} does not exist", f"Use {FORMS}.")
    if not path.name.endswith(SUFFIX) and not _compressed(path):
        raise EverstepError(f"the source {location!r} is not a tar archive", f"Use {FORMS}.")
    return TarSource(path.absolute())


def _compressed(path: Path) -> bool:
    """Return whether it may be a compressed archive, which has an error of its own."""
    return path.suffix == ".tgz" or ".tar." in path.name
