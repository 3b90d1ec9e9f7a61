"""Finds secrets that stand in clear in a stack file, wherever they stand.

A stack file is committed, and what it says ends in pods, in the state and in previews that are
pasted into pull requests. Values are recognised by their shape, and in mappings that users fill
freely also by their name. No message shows what was found.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.faults import Fault

HIDDEN = "(hidden)"

_SHAPES = {
    "an access key of AWS": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a token of GitHub": r"\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})",
    "a token of Hugging Face": r"\bhf_[A-Za-z0-9]{20,}",
    "a token of Slack": r"\bxox[abpr]-[A-Za-z0-9-]{10,}",
    "a token of Pulumi": r"\bpul-[0-9a-f]{32,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a signed token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}",
    "a key of an Azure account": r"(?i)\b(AccountKey|SharedAccessKey)=|[?&]sig=[\w%]{20,}",
    "an address with a password": r"://[^/\s:@]+:[^/\s:@]+@",
}
_NAMES = {
    "password", "passwd", "secret", "token", "credential", "credentials", "apikey",
    "api key", "access key", "account key", "private key", "connection string",
}  # fmt: skip
_NO_SECRETS = {
    "file",
    "path",
    "dir",
    "name",
    "url",
    "enabled",
}  # last words that say where, not what

_CURE = (
    "make a Secret in the namespace elastic-job and name it in job.envFromSecrets; "
    "renew the secret if this file was ever committed"
)


def in_clear(data: Mapping[str, Any]) -> list[Fault]:
    """Give a fault for each secret in a mapping as a stack file holds it."""
    return [
        Fault(path, HIDDEN, f"looks like {what}, in clear", _CURE)
        for path, name, value in _texts(data, "")
        if (what := _recognised(name, value))
    ]


def hide(fault: Fault, secret: frozenset[str]) -> Fault:
    """Give the fault without its value where that is a secret."""
    if fault.path in secret or _recognised("", str(fault.value)):
        return Fault(fault.path, HIDDEN, fault.rule.replace(str(fault.value), HIDDEN), fault.cure)
    return fault


def _texts(value: object, path: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Give path, key and value of every text in nested mappings and lists."""
    if isinstance(value, str):
        yield path, name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}".removeprefix("."), str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]", name)


def _recognised(name: str, value: str) -> str:
    """Say what secret a text looks like; empty where it looks like none."""
    for what, shape in _SHAPES.items():
        if re.search(shape, value):
            return what
    harmless = not value or value.lower() in {"true", "false"} or value.startswith("$(")
    return "a secret by its name" if _names_secret(name) and not harmless else ""


def _names_secret(name: str) -> bool:
    """Say whether a key is one that secrets go by: DB_PASSWORD, hfToken; not TOKENIZERS."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words or words[-1] in _NO_SECRETS:
        return False
    pairs = {f"{one} {other}" for one, other in itertools.pairwise(words)}
    return bool(_NAMES & (pairs | set(words)))
