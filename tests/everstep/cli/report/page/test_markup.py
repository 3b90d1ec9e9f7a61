"""Markup: text stays text, even if it contains tags."""

import json

from hypothesis import given
from hypothesis import strategies as st

from everstep.cli.report.page.markup import Html, data_block, element
from tests.everstep.cli.report.page.parsed_page import parse

HOSTILE_TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["</script><script>alert(1)</script>", "<!--", '"><img src=x onerror=alert(1)>', "]]>"]
    ),
)
CONTROL_CHARACTERS = {*range(0x20), *range(0x7F, 0xA0)} - {9, 10}


@given(HOSTILE_TEXTS)
def test_text_and_attributes_survive_parsing(text: str) -> None:
    (node,) = parse(element("p", text, title=text).text).children

    expected = (
        "".join(c for c in text if ord(c) not in CONTROL_CHARACTERS)
        .encode(errors="replace")
        .decode()
    )
    assert not isinstance(node, str)
    assert node.text == expected
    assert node.attributes == {"title": expected}


@given(st.dictionaries(HOSTILE_TEXTS, HOSTILE_TEXTS | st.integers() | st.none(), max_size=5))
def test_a_data_block_has_its_values_and_cannot_be_ended_by_them(values: dict[str, object]) -> None:
    (node,) = parse(data_block("run", values).text).children

    assert not isinstance(node, str)
    assert json.loads(node.text) == values


def test_attributes_are_left_out_or_have_no_value() -> None:
    slider = element("input", type="range", hidden=True, checked=False, title=None, aria_label="a")

    assert slider == Html('<input type="range" hidden aria-label="a">')
