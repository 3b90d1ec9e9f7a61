"""Generated sections of pages that are otherwise written by hand."""


def replace_section(page: str, begin: str, end: str, content: str) -> str:
    """Return a page with new content between two markers.

    Args:
        page: text of the page.
        begin: marker before the section.
        end: marker after the section.
        content: text between the markers, with the line breaks around it.

    Raises:
        ValueError: the page does not have both markers, in this order.
    """
    before, begin_marker, remainder = page.partition(begin)
    _, end_marker, after = remainder.partition(end)
    if not begin_marker or not end_marker:
        missing_marker = end if begin_marker else begin
        raise ValueError(f"the page has no marker {missing_marker.strip()!r}")
    return f"{before}{begin}{content}{end}{after}"
