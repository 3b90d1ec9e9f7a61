"""Detection of plaintext secrets anywhere in a stack file.

A stack file is committed, and its values appear in pods, in the state and in previews pasted into
pull requests. Secrets are recognized by the format of the value or by the name of the key. No
message shows the value found.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.config.faults import ConfigFault
from components.config.section import CREDENTIALS_IN_URL
from everstep.catalog.plaintext import is_harmless

HIDDEN = "(hidden)"

_PATTERNS = {
    "an AWS access key": r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY-----",
    "a GitHub token": r"\b(gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{20,}",
    "a Slack token": r"\bxox[abpr]-[A-Za-z0-9-]{10,}",
    "a Pulumi token": r"\bpul-[0-9a-f]{32,}",
    "an API key": r"\bsk-[A-Za-z0-9_-]{20,}",
    "a signed token": r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}",
    "an Azure account key": r"(?i)\b(AccountKey|SharedAccessKey)=|[?&]sig=[\w%]{20,}",
    "a URL with a password": CREDENTIALS_IN_URL,
}
_NAMES = {
    "password", "passwd", "secret", "token", "credential", "credentials", "apikey",
    "api key", "access key", "account key", "private key", "connection string",
}  # fmt: skip
_LAST_WORDS = {"key", "pass", "pwd", "auth"}
# Last words of keys whose value is not a secret, but for instance the path of one.
_HARMLESS_LAST_WORDS = {"file", "path", "dir", "name", "url", "enabled"}

_FIX = (
    "create a Secret in the namespace elastic-job and name it in job.envFromSecrets; "
    "rotate the secret if this file was ever committed"
)
_PROXY_FIX = (
    "remove the user and the password, and use a proxy that admits nodes by their addresses: nodes and the "
    "state store the URL in plaintext; rotate the password if this file was ever committed"
)


def plaintext_secrets(data: Mapping[str, Any]) -> list[ConfigFault]:
    """Return a fault for each plaintext secret in the mapping of a stack file."""
    return [
        ConfigFault(path, HIDDEN, f"looks like {description}, in plaintext", _fix(path))
        for path, name, value in _texts(data, "")
        if (description := _kind_of_secret(name, value))
    ]


def _fix(path: str) -> str:
    """Return the fix for a plaintext secret at a path."""
    return _PROXY_FIX if ".proxy." in path else _FIX


def hide(fault: ConfigFault, secret_paths: frozenset[str]) -> ConfigFault:
    """Return the fault, with its value hidden if the value is or contains a secret."""
    prefixes = tuple(f"{fault.path}{sign}" for sign in ".[")
    if (
        fault.path in secret_paths
        or any(path.startswith(prefixes) for path in secret_paths)
        or _kind_of_secret("", str(fault.value))
    ):
        value = str(fault.value)
        rule, fix = (text.replace(value, HIDDEN) for text in (fault.rule, fault.fix))
        return ConfigFault(fault.path, HIDDEN, rule, fix)
    return fault


def _texts(value: object, path: str, name: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, key and value of every string in nested mappings and lists."""
    if isinstance(value, str):
        yield path, name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(inner, f"{path}.{key}".removeprefix("."), str(key))
    elif isinstance(value, list | tuple):
        for index, (option, inner) in enumerate(_with_options(value)):
            yield from _texts(inner, f"{path}[{index}]", option or name)


def _with_options(words: Sequence[object]) -> Iterator[tuple[str, object]]:
    """Yield each element, or its value if it is `OPTION=VALUE`, with the command-line option that it sets, if any."""
    option = ""
    for word in words:
        if isinstance(word, str) and word.startswith("-"):
            option, separator, value = word.partition("=")
            yield (option, value) if separator else ("", word)
            option = "" if separator else option
        else:
            yield option, word
            option = ""


def _kind_of_secret(name: str, value: str) -> str:
    """Return the kind of secret that a string looks like; empty if it looks harmless."""
    for description, pattern in _PATTERNS.items():
        if re.search(pattern, value):
            return description
    return "a secret by its name" if _names_secret(name) and not is_harmless(value) else ""


def _names_secret(name: str) -> bool:
    """Return True if a key names a secret, as DB_PASSWORD and hfToken do, unlike TOKENIZERS."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if not words or words[-1] in _HARMLESS_LAST_WORDS:
        return False
    if name.isupper() and len(words) > 1 and words[-1] in _LAST_WORDS:
        return True  # an environment variable, such as KAGGLE_KEY
    pairs = {f"{first} {second}" for first, second in itertools.pairwise(words)}
    return bool(_NAMES & (pairs | set(words)))
