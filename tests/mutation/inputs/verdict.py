"""Verdicts of the twin on inputs: refused at preview or at `up`, accepted, or failed."""

import shutil
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cloudtwin import files
from cloudtwin.providers.errors import CloudError, IncompleteError
from cloudtwin.providers.machines import Offline
from cloudtwin.providers.operations import Operations
from cloudtwin.providers.protocol.errors import ProviderError

from tests.mutation.inputs.declared import CLOUDS, CREATE_SECONDS, SEED, DeclaredResource

ACCEPTED, AT_PREVIEW, AT_UP, FAILED = "accepted", "refused at preview", "refused at up", "failed"


@dataclass(frozen=True)
class Verdict:
    """The verdict of the twin on one wrong variant.

    Attributes:
        outcome: ACCEPTED, AT_PREVIEW, AT_UP or FAILED.
        message: the refusal, or the traceback of a failure; empty if the variant is accepted.
    """

    outcome: str
    message: str = ""


class Judge:
    """Sends inputs to the twin's providers, in accounts in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._providers: dict[str, Operations] = {}

    def verdict(self, resource: DeclaredResource, inputs: Mapping[str, Any]) -> Verdict:
        """Return the twin's verdict on a declared resource with changed inputs."""
        try:
            return self._verdict(resource, inputs)
        except Exception:
            return Verdict(FAILED, traceback.format_exc())

    def _verdict(self, resource: DeclaredResource, inputs: Mapping[str, Any]) -> Verdict:
        operations = self._operations(resource)
        try:
            valid_inputs, mistakes = operations.check(resource.key, {}, dict(inputs), SEED)
        except ProviderError as error:
            return Verdict(AT_PREVIEW, str(error))
        if mistakes:
            return Verdict(
                AT_PREVIEW, "; ".join(f"{mistake.path}: {mistake.reason}" for mistake in mistakes)
            )
        self._restore(resource)
        try:
            operations.create(resource.key, valid_inputs, CREATE_SECONDS)
        except (CloudError, IncompleteError) as error:
            return Verdict(AT_UP, str(error))
        return Verdict(ACCEPTED)

    def _operations(self, resource: DeclaredResource) -> Operations:
        if resource.stack not in self._providers:
            cloud = CLOUDS[resource.token.partition(":")[0]]
            operations = Operations(cloud, self._folder, Offline(), resource.config)
            self._providers[resource.stack] = operations
        return self._providers[resource.stack]

    def _restore(self, resource: DeclaredResource) -> None:
        """Restore the account to its state before the resource was created."""
        account = self._operations(resource).account
        shutil.rmtree(account.folder, ignore_errors=True)
        account.folder.mkdir(parents=True)
        resources = [
            asdict(stored_resource) for stored_resource in resource.prior_account.resources
        ]
        files.write_json(account.path, {"resources": resources}, 0o600)


@contextmanager
def judge() -> Iterator[Judge]:
    """Yield a judge with its own folder."""
    with tempfile.TemporaryDirectory(prefix="everstep-inputs-") as folder:
        yield Judge(Path(folder))
