"""Generated sections of pages that are otherwise written by hand."""


def replace_section(page: str, begin: str, end: str, content: str) -> str:
    """Return a page with new content between two marks.

    Args:
        page: text of the page.
        begin: mark in front of the section.
        end: mark after the section.
        content: text between the marks, with the line breaks around it.

    Raises:
        ValueError: the page does not have both marks, in this order.
    """
    before, begin_mark, remainder = page.partition(begin)
    _, end_mark, after = remainder.partition(end)
    if not begin_mark or not end_mark:
        missing_mark = end if begin_mark else begin
        raise ValueError(f"the page has no mark {missing_mark.strip()!r}")
    return f"{before}{begin}{content}{end}{after}"
