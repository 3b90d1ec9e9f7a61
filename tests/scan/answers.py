"""The answers to a scanner's findings, from a table of a page. Pure."""

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
        check: identifier of the rule.
        rule: requirement of the check.
        resource: the object or file that does not comply.
    """

    check: str
    rule: str
    resource: str


@dataclass(frozen=True)
class Answer:
    """Accepted findings of one rule, with the reason.

    Attributes:
        check: identifier of the rule.
        resources: patterns of the objects or files, as a shell's.
        reason: explanation of the answer.
    """

    check: str
    resources: tuple[str, ...]
    reason: str

    def covers(self, finding: Finding) -> bool:
        """Return whether this is the answer to a finding."""
        return finding.check == self.check and any(
            fnmatchcase(finding.resource, pattern) for pattern in self.resources
        )


def parse_answers(page: str) -> list[Answer]:
    """Return the answers in the rows of a page's table: rules, patterns of resources, reason.

    Raises:
        ValueError: the page has no such row.
    """
    answers = [
        Answer(
            check.strip(), tuple(re.findall(r"`([^`]+)`", row["resources"])), row["reason"].strip()
        )
        for row in ROW.finditer(page)
        for check in row["checks"].split(",")
    ]
    if not answers:
        raise ValueError("the page has no row `| CKV_... | resources | reason |`")
    return answers


def unanswered(findings: Iterable[Finding], answers: Iterable[Answer]) -> list[Finding]:
    """Return the findings without an answer, sorted."""
    exceptions = list(answers)
    return sorted(
        finding for finding in findings if not any(answer.covers(finding) for answer in exceptions)
    )


def unused(findings: Iterable[Finding], answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers that no finding needs, or of which no finding needs one pattern."""
    all_findings = list(findings)
    return [
        answer
        for answer in answers
        if not all(
            any(Answer(answer.check, (pattern,), "").covers(finding) for finding in all_findings)
            for pattern in answer.resources
        )
    ]
