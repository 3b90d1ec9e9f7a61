"""The measured sizes of a study in a file, so that an interrupted study continues where it stopped."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everstep.cli.scaling.study import SizeResult
from everstep.errors import EverstepError
from everstep.files import READABLE, write_atomically

FILE = "measurements.json"


@dataclass
class Store:
    """Measurements by settings and number of replicas.

    Attributes:
        folder: folder of the study.
        settings: settings that all sizes of the study share; sizes with other settings are kept, but not returned.
    """

    folder: Path
    settings: Mapping[str, Any]
    _others: list[dict[str, Any]] = field(default_factory=list)
    _sizes: dict[int, SizeResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in self._read():
            if entry["settings"] == dict(self.settings):
                size = SizeResult(**entry["result"])
                self._sizes[size.replicas] = size
            else:
                self._others.append(entry)

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self.folder / FILE

    def get(self, replicas: int) -> SizeResult | None:
        """Return the measurement of a size; None if it was not measured with these settings."""
        return self._sizes.get(replicas)

    def add(self, size: SizeResult) -> None:
        """Add or replace the measurement of a size, and write the file."""
        self._sizes[size.replicas] = size
        entries = [
            {"settings": dict(self.settings), "result": self._sizes[replicas].as_value()}
            for replicas in sorted(self._sizes)
        ]
        text = json.dumps([*self._others, *entries], indent=1) + "\n"
        write_atomically(self.path, text, READABLE)

    def _read(self) -> list[dict[str, Any]]:
        try:
            entries = json.loads(self.path.read_text())
            for entry in entries:
                SizeResult(**entry["result"])
                dict(entry["settings"])
        except FileNotFoundError:
            return []
        except OSError as error:
            raise EverstepError(
                f"{self.path} cannot be read: {error.strerror}", "Name another folder with --out."
            ) from None
        except (ValueError, TypeError, KeyError) as error:
            raise EverstepError(
                f"{self.path} is not a file of measurements: {error}",
                "Remove it, or name another folder with --out.",
            ) from None
        return list(entries)
