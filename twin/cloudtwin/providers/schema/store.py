"""Cache of extracted resource types, one file each; missing types are extracted."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cloudtwin import files
from cloudtwin.errors import TwinError
from cloudtwin.paths import cache_directory
from cloudtwin.providers.schema.model import ResourceSchema, from_json

SDKS = {"aws": "pulumi_aws", "azure-native": "pulumi_azure_native"}
EXTRACT_SECONDS = 300.0
READERS = ("extract.py", "model.py")  # a change to these invalidates the cache


def sdk_version(cloud: str) -> str:
    """Return the version of a cloud's SDK.

    Raises:
        TwinError: the SDK is not installed.
    """
    # Imported late: it takes fifty milliseconds, which most commands can save.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(SDKS[cloud])
    except PackageNotFoundError:
        raise TwinError(
            f"The SDK {SDKS[cloud]} is not installed next to the twin.",
            f"Install it: pip install {SDKS[cloud].replace('_', '-')}",
        ) from None


def file_name(token: str) -> str:
    """Return the name of a type's cache file."""
    return token.replace(":", ".").replace("/", "-") + ".json"


@dataclass(frozen=True)
class SchemaStore:
    """Schemas of the types of one cloud.

    Attributes:
        cloud: aws or azure-native.
        tokens: all types; if one is missing, all missing types are extracted, because importing the SDK
            takes most of the time.
    """

    cloud: str
    tokens: Collection[str]

    def load(self, token: str) -> ResourceSchema:
        """Return the schema of a type, extracted on first use.

        Raises:
            TwinError: the SDK is not installed or its types cannot be read.
        """
        path = self.folder / file_name(token)
        if not path.exists():
            self.fill()
        return from_json(json.loads(path.read_text()))

    def fill(self) -> None:
        """Extract the missing types, once even if several processes need them.

        Raises:
            TwinError: as for `load`.
        """
        with files.locked(self.folder / "lock"):
            missing = sorted(
                token for token in self.tokens if not (self.folder / file_name(token)).exists()
            )
            if missing:
                self._extract(missing)

    def _extract(self, tokens: list[str]) -> None:
        program = [sys.executable, "-P", "-W", "ignore", "-m", "cloudtwin.providers.schema.extract"]
        try:
            result = subprocess.run(
                [*program, self.cloud, str(self.folder), *tokens],
                capture_output=True,
                check=False,
                text=True,
                timeout=EXTRACT_SECONDS,
                start_new_session=True,  # Ctrl-C should end only the engine; the extraction may finish
            )
        except subprocess.TimeoutExpired:
            raise TwinError(
                f"The types of {SDKS[self.cloud]} were not read within {EXTRACT_SECONDS:g} s.",
                f"Repeat the command when the machine is less busy: {self.folder} keeps the types read so far.",
            ) from None
        if result.returncode:
            raise TwinError(
                f"The types of {SDKS[self.cloud]} could not be read:\n{result.stderr.strip()}",
                "Install the SDK version that the twin is tested with.",
            )

    @cached_property
    def folder(self) -> Path:
        """Folder with the types of this SDK version."""
        package = Path(__file__).parent
        digest = hashlib.sha256(b"".join((package / name).read_bytes() for name in READERS))
        name = f"{SDKS[self.cloud]}-{sdk_version(self.cloud)}-{digest.hexdigest()[:8]}"
        return cache_directory() / "schemas" / name
