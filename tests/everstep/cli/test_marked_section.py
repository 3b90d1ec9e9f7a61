"""Generated sections of pages that are otherwise written by hand."""

import pytest

from everstep.cli.marked_section import replace_section

BEGIN, END = "<!-- begin -->", "<!-- end -->"


def test_only_the_section_between_the_marks_is_replaced() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"

    assert replace_section(page, BEGIN, END, "\nnew\n") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"


@pytest.mark.parametrize(
    ("page", "mark"),
    [
        (f"before\n{BEGIN}\nold\nafter\n", END),
        (f"before\nold\n{END}\nafter\n", BEGIN),
        (f"before\n{END}\nold\n{BEGIN}\nafter\n", END),
    ],
    ids=["no end", "no begin", "wrong order"],
)
def test_a_page_without_a_mark_is_refused_and_not_shortened(page: str, mark: str) -> None:
    with pytest.raises(ValueError, match=f"no mark '{mark}'"):
        replace_section(page, BEGIN, END, "\nnew\n")
