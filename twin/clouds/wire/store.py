"""Keeps extracted types in the cache, one file each, and has them extracted where they are missing."""

import fcntl
import hashlib
import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from everstep.errors import EverstepError
from twin.clouds.wire.model import Wire, from_json
from twin.paths import cache_directory

SDKS = {"aws": "pulumi_aws", "azure-native": "pulumi_azure_native"}
EXTRACT_SECONDS = 300.0
READERS = ("extract.py", "model.py")  # what they say decides what the files hold


def sdk_version(cloud: str) -> str:
    """Return the version of a cloud's SDK.

    Raises:
        EverstepError: it is not installed.
    """
    # Not at the top: fifty milliseconds of every command, for what a warm cache needs once.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(SDKS[cloud])
    except PackageNotFoundError:
        extra = "aws" if cloud == "aws" else "azure"
        raise EverstepError(
            f"The SDK {SDKS[cloud]} is not installed beside the twin.",
            f"Install the group `{extra}`: pip install 'everstep[{extra}]'",
        ) from None


def file_name(token: str) -> str:
    """Return the name of a type's file in the cache."""
    return token.replace(":", ".").replace("/", "-") + ".json"


@dataclass(frozen=True)
class Wires:
    """The types of one cloud that the twin knows.

    Attributes:
        cloud: aws or azure-native.
        tokens: all of them: the first that is missing brings the others along, because most of the
            time of an extraction goes into importing the SDK.
    """

    cloud: str
    tokens: Collection[str]

    def load(self, token: str) -> Wire:
        """Return a type, extracted if need be.

        Raises:
            EverstepError: the SDK is not installed or cannot be read.
        """
        path = self.folder / file_name(token)
        if not path.exists():
            self.fill()
        return from_json(json.loads(path.read_text()))

    def fill(self) -> None:
        """Extract what is missing; two processes that find it missing do it once.

        Raises:
            EverstepError: as for `load`.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            missing = sorted(
                token for token in self.tokens if not (self.folder / file_name(token)).exists()
            )
            if missing:
                self._extract(missing)

    def _extract(self, tokens: list[str]) -> None:
        program = [sys.executable, "-P", "-W", "ignore", "-m", "twin.clouds.wire.extract"]
        done = subprocess.run(
            [*program, self.cloud, str(self.folder), *tokens],
            capture_output=True,
            check=False,
            text=True,
            timeout=EXTRACT_SECONDS,
            start_new_session=True,  # a Ctrl-C is for the engine; the cache may be finished
        )
        if done.returncode:
            raise EverstepError(
                f"The types of {SDKS[self.cloud]} could not be read:\n{done.stderr.strip()}",
                "The twin knows the SDK versions in pyproject.toml; install those.",
            )

    @cached_property
    def folder(self) -> Path:
        """Where this SDK version's types are."""
        here = Path(__file__).parent
        digest = hashlib.sha256(b"".join((here / name).read_bytes() for name in READERS))
        name = f"{SDKS[self.cloud]}-{sdk_version(self.cloud)}-{digest.hexdigest()[:8]}"
        return cache_directory() / "wire" / name
