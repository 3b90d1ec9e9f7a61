"""Accepted findings of a scanner, from a table in a Markdown page."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

ROW = re.compile(
    r"^\| (?P<checks>CKV[\w, ]+) \| (?P<resources>[^|]+) \| (?P<reason>[^|]+) \|$", re.MULTILINE
)


@dataclass(frozen=True, order=True)
class Finding:
    """One finding.

    Attributes:
        check: identifier of the check, such as CKV_K8S_20.
        rule: requirement of the check.
        resource: the object or file that does not comply.
    """

    check: str
    rule: str
    resource: str


@dataclass(frozen=True)
class AcceptedFinding:
    """Accepted findings of one check, with the reason.

    Attributes:
        check: identifier of the check.
        resources: shell patterns of the objects or files.
        reason: reason why they are accepted.
    """

    check: str
    resources: tuple[str, ...]
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return True if this entry accepts a finding."""
        return finding.check == self.check and any(
            fnmatchcase(finding.resource, pattern) for pattern in self.resources
        )


def parse_accepted(page: str) -> list[AcceptedFinding]:
    """Return the accepted findings in a page's table, whose columns are checks, patterns of resources, and reason.

    Raises:
        ValueError: the page has no such row.
    """
    entries = [
        AcceptedFinding(
            check.strip(), tuple(re.findall(r"`([^`]+)`", row["resources"])), row["reason"].strip()
        )
        for row in ROW.finditer(page)
        for check in row["checks"].split(",")
    ]
    if not entries:
        raise ValueError("the page has no row `| CKV_... | resources | reason |`")
    return entries


def unaccepted_findings(
    findings: Iterable[Finding], accepted: Iterable[AcceptedFinding]
) -> list[Finding]:
    """Return the findings without an entry, sorted."""
    entries = list(accepted)
    return sorted(
        finding for finding in findings if not any(entry.covers(finding) for entry in entries)
    )


def stale_entries(
    findings: Iterable[Finding], accepted: Iterable[AcceptedFinding]
) -> list[AcceptedFinding]:
    """Return the entries that cover no finding, or have a pattern that covers none."""
    all_findings = list(findings)
    return [
        entry
        for entry in accepted
        if not all(
            any(
                AcceptedFinding(entry.check, (pattern,), "").covers(finding)
                for finding in all_findings
            )
            for pattern in entry.resources
        )
    ]
