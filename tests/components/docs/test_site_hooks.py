"""The hooks of the documentation site."""

import pytest

from components.docs.site_hooks import requests_to_other_hosts, with_source_links

EXTRA = {"repository": "https://github.com/o/r"}


@pytest.mark.parametrize(
    ("name", "link", "expected"),
    [
        ("eks.md", "../Makefile", "https://github.com/o/r/blob/main/Makefile"),
        ("eks.md", "../stacks/", "https://github.com/o/r/tree/main/stacks"),
        ("eks.md", "../docs/aks.md", "../docs/aks.md"),
        ("decisions/x.md", "../../Makefile", "https://github.com/o/r/blob/main/Makefile"),
        ("decisions/x.md", "../eks.md#steps", "../eks.md#steps"),
        (
            "eks.md",
            "../trainer/README.md#data",
            "https://github.com/o/r/blob/main/trainer/README.md#data",
        ),
    ],
)
def test_a_link_out_of_the_pages_leads_to_the_repository(
    name: str, link: str, expected: str
) -> None:
    assert with_source_links(f"see [it]({link}).", name, EXTRA) == f"see [it]({expected})."


def test_a_link_to_a_file_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"docs/eks\.md links to Makefil,"):
        with_source_links("[it](../Makefil)", "eks.md", EXTRA)


def test_links_within_the_pages_are_unchanged() -> None:
    text = "[a](aks.md#steps) [b](https://example.org/../x) ![c](images/x.svg)"

    assert with_source_links(text, "eks.md", EXTRA) == text


@pytest.mark.parametrize(
    ("html", "address"),
    [
        ('<script async src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ("<img alt=logo src=//cdn.example/x.png>", "//cdn.example/x.png"),
        ('<link rel="stylesheet" href="https://fonts.example/css">', "https://fonts.example/css"),
        ('<link href="https://fonts.example" rel="preconnect">', "https://fonts.example"),
    ],
)
def test_requests_of_a_browser_to_another_host_are_found(html: str, address: str) -> None:
    assert requests_to_other_hosts(html) == [address]


def test_links_and_own_files_are_not_requests_to_other_hosts() -> None:
    html = (
        '<a href="https://example.org">x</a><script src="../assets/x.js"></script>'
        '<link rel="canonical" href="https://everstep.github.io/"><link rel=stylesheet href=x.css>'
    )

    assert requests_to_other_hosts(html) == []
