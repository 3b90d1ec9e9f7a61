"""Generated sections of pages that are otherwise written by hand."""

import pytest

from everstep.cli.marked_section import replace_section

BEGIN, END = "<!-- begin -->", "<!-- end -->"


def test_only_the_section_between_the_markers_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"

    assert replace_section(page, BEGIN, END, "\nnew\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize(
    ("page", "marker"),
    [
        (f"before\n{BEGIN}\nold\nafter\n", END),
        (f"before\nold\n{END}\nafter\n", BEGIN),
        (f"before\n{END}\nold\n{BEGIN}\nafter\n", END),
    ],
    ids=["no end", "no begin", "wrong order"],
)
def test_a_page_without_a_marker_is_refused_and_not_shortened(page: str, marker: str) -> None:
    with pytest.raises(ValueError, match=f"no marker '{marker}'"):
        replace_section(page, BEGIN, END, "\nnew\n")
