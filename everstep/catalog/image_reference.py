"""Image references, resolved as containerd and Docker resolve them.

The grammar is defined by github.com/distribution/reference: `torchelastic/kubernetes:0.1.0` and
`docker.io/torchelastic/kubernetes:0.1.0` are one image. Compare references only after `parse`.
"""

import re
from dataclasses import dataclass

DEFAULT_DOMAIN = "docker.io"
DEFAULT_DOMAIN_LOGIN = (
    "https://index.docker.io/v1/"  # its key in credential files of Docker and the kubelet
)
OFFICIAL_PREFIX = "library/"
DEFAULT_TAG = "latest"
LEGACY_DOMAIN = "index.docker.io"
MAX_PATH_LENGTH = 255  # characters, in distribution/reference

_DOMAIN_PART = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_DOMAIN_PART}(?:\.{_DOMAIN_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_PATH = rf"{_PATH_PART}(?:/{_PATH_PART})*"
_TAG = r"[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}"
_DIGEST = r"sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}"
_REFERENCE = re.compile(
    rf"(?P<domain>{_DOMAIN})/(?P<path>{_PATH})(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?"
)
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")


@dataclass(frozen=True)
class ImageReference:
    """An image reference with all defaults filled in.

    Attributes:
        domain: host of the registry, with its port if there is one.
        path: repository at that host.
        tag: its tag; empty if the reference has a digest.
        digest: its digest, such as `sha256:...`; empty if there is none.
    """

    domain: str
    path: str
    tag: str = ""
    digest: str = ""

    @property
    def name(self) -> str:
        """Domain and path, without tag and digest."""
        return f"{self.domain}/{self.path}"

    def __str__(self) -> str:
        """Return the complete reference."""
        tag = f":{self.tag}" if self.tag else ""
        return f"{self.name}{tag}{f'@{self.digest}' if self.digest else ''}"


def parse(text: str) -> ImageReference:
    """Parse an image reference as containerd does, and return the complete reference.

    Raises:
        ValueError: it is not an image reference; the message names the reason.
    """
    if _IDENTIFIER.fullmatch(text):
        raise ValueError("64 hexadecimal digits are an image id, not a reference")
    domain, remainder = _split_domain(text)
    name = remainder.partition("@")[0]
    if name.rpartition("/")[2].partition(":")[0] == "":
        raise ValueError("it has no name")
    match = _REFERENCE.fullmatch(f"{domain}/{remainder}")
    if match is None:
        raise ValueError(_reason(domain, remainder))
    if len(match["path"]) > MAX_PATH_LENGTH:
        raise ValueError(f"its name has more than {MAX_PATH_LENGTH} characters")
    if match["digest"]:  # containerd ignores the tag next to a digest
        return ImageReference(match["domain"], match["path"], digest=match["digest"])
    return ImageReference(match["domain"], match["path"], match["tag"] or DEFAULT_TAG)


def is_same(text: str, other: str) -> bool:
    """Return True if containerd resolves two strings to the same image; an invalid string equals only itself."""
    return canonical(text) == canonical(other)


def canonical(text: str) -> str:
    """Return the complete reference of a string, or the string itself if it is not a reference."""
    try:
        return str(parse(text))
    except ValueError:
        return text


def domain_of(text: str) -> str:
    """Return the host of an image's registry; empty if the string is not a reference."""
    try:
        return parse(text).domain
    except ValueError:
        return ""


def _split_domain(text: str) -> tuple[str, str]:
    first, slash, remainder = text.partition("/")
    is_domain = (
        "." in first or ":" in first or first == "localhost" or first.lower() != first
    ) and bool(slash)
    if not is_domain:
        first, remainder = DEFAULT_DOMAIN, text
    if first == LEGACY_DOMAIN:
        first = DEFAULT_DOMAIN
    if first == DEFAULT_DOMAIN and "/" not in remainder:
        remainder = OFFICIAL_PREFIX + remainder
    return first, remainder


def _reason(domain: str, remainder: str) -> str:
    name, separator, digest = remainder.partition("@")
    path, _, tag = name.partition(":")
    if not re.fullmatch(_DOMAIN, domain):
        return f"{domain!r} is not the host of a registry"
    if path != path.lower():
        return f"{path!r} has upper-case letters"
    if not re.fullmatch(_PATH, path):
        return f"{path!r} is not a repository: letters, digits and single separators between them"
    if separator and not re.fullmatch(_DIGEST, digest):
        return f"{digest!r} is not a digest, such as sha256: and 64 hexadecimal digits"
    return f"{tag!r} is not a tag: at most 128 letters, digits and _ . -"
