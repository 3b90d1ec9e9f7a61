"""MkDocs hooks: link to repository files on GitHub, and reject requests to other hosts.

mkdocs.yml loads this file by its path, in an environment with MkDocs but without the project: it imports the standard
library only. On GitHub, the link `../stacks/Pulumi.local.yaml` in a page opens the file. The site contains only
pages, so the hook makes such a link open the file on GitHub. A page that would load a script, style, font or picture
from another host is an error.
"""

import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]

LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]*)(?=[)#])")
"""A link to a path above the page's folder."""

EXTERNAL_REQUEST = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon))"
    r"[^>]*?\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)"
)
"""An element whose content a browser requests from another host."""


class File(Protocol):
    """The part of MkDocs' file that the hooks read: its path in docs/."""

    src_uri: str


class Page(Protocol):
    """The part of MkDocs' page that the hooks read."""

    file: File


class Config(Protocol):
    """The part of MkDocs' configuration that the hooks read."""

    extra: Mapping[str, str]


def on_page_markdown(markdown: str, *, page: Page, config: Config, **_: object) -> str:
    """Return the text of a page with links to files of the repository; called by MkDocs."""
    return with_source_links(markdown, page.file.src_uri, config.extra)


def on_post_page(output: str, *, page: Page, **_: object) -> str:
    """Return a page unchanged; called by MkDocs.

    Raises:
        ValueError: the page would load something from another host.
    """
    if requested_hosts := requests_to_other_hosts(output):
        raise ValueError(
            f"{page.file.src_uri} loads {', '.join(requested_hosts)}: a reader's browser would request it. "
            "Copy it into docs/, or link to it."
        )
    return output


def with_source_links(markdown: str, name: str, extra: Mapping[str, str]) -> str:
    """Return the text of a page with links to files outside docs/ as links to the repository.

    Args:
        markdown: text of the page.
        name: path of the page in docs/.
        extra: the section `extra` of mkdocs.yml.

    Raises:
        ValueError: a link leads to a file that does not exist.
    """

    def link(match: re.Match[str]) -> str:
        target = normpath(f"docs/{PurePosixPath(name).parent}/{match[1]}")
        if target.split("/")[0] == "docs":
            return match[0]
        if target.startswith("..") or not (ROOT / target).exists():
            raise ValueError(
                f"docs/{name} links to {target}, which does not exist. Correct the link."
            )
        kind = "tree" if (ROOT / target).is_dir() else "blob"
        return f"]({extra['repository']}/{kind}/main/{target}"

    return LINK.sub(link, markdown)


def requests_to_other_hosts(html: str) -> list[str]:
    """Return the addresses on other hosts that a browser would request for a page."""
    return [source or reference for source, reference in EXTERNAL_REQUEST.findall(html)]
